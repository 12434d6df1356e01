package cli

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ProviderNames lists the configured providers.
func (c Config) ProviderNames() []string { return slices.Sorted(maps.Keys(c.Providers)) }

// Provider returns the adapter of a configured provider, and a function that decodes
// its other settings into the adapter's own configuration: strictly, with environment
// variables filled in. Only now a missing variable is an error.
func (c Config) Provider(name string) (adapter string, decode func(into any) error, _ error) {
	at := providersKey + "." + name
	settings, ok := c.Providers[name].(map[string]any)
	if !ok {
		return "", nil, Fail(Usage, "", "%s: %s: give its adapter and settings", c.source(), at)
	}
	expanded, err := expand(clone(settings), c.env, at)
	if err != nil {
		return "", nil, Fail(Usage, "", "%s: %w", c.source(), err)
	}
	rest := expanded.(map[string]any)
	adapter, ok = rest["adapter"].(string)
	if !ok || adapter == "" {
		return "", nil, Fail(Usage, "", "%s: %s.adapter: give the name of an adapter", c.source(), at)
	}
	delete(rest, "adapter")
	return adapter, func(into any) error { return c.decode(rest, into, at) }, nil
}

func (c Config) decode(settings map[string]any, into any, at string) error {
	text, err := yaml.Marshal(settings)
	if err != nil {
		return Fail(Usage, "", "%s: %s: %w", c.source(), at, err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		// Its line numbers are those of the text made here.
		what := yamlLineAnywhere.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "")
		what = unknownField.ReplaceAllString(what, "unknown key $1")
		return Fail(Usage, "see docs/configuration.md", "%s: %s: %s", c.source(), at, oneLine(what))
	}
	return nil
}

func (c Config) source() string {
	if c.File == "" {
		return "$" + envPrefix + "PROVIDERS__…"
	}
	return c.File
}

// clone copies maps and lists, because expand writes into them.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = clone(v[k])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	default:
		return v
	}
}
