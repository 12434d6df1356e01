package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"go.yaml.in/yaml/v3"
)

// fileParser reads a YAML file strictly, and fills in environment variables except
// below providers.
type fileParser struct {
	path string
	env  Env
	keys []Key
	from map[string]string
}

// Unmarshal is koanf's Parser.
func (p *fileParser) Unmarshal(text []byte) (map[string]any, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, p.syntax(err)
	}
	if len(doc.Content) == 0 { // empty, or comments only
		return map[string]any{}, nil
	}
	if root := doc.Content[0]; root.Kind != yaml.MappingNode {
		return nil, Fail(Usage, "start with a section such as database:", "%s:%d: not a mapping", p.path, root.Line)
	}
	if err := p.check(doc.Content[0], ""); err != nil {
		return nil, &Error{Code: Usage, Err: err, Hint: "see docs/configuration.md"}
	}
	values, err := koanfyaml.Parser().Unmarshal(text)
	if err != nil {
		return nil, p.syntax(err)
	}
	for section, value := range values {
		if section == providersKey {
			continue
		}
		values[section], err = expand(value, p.env, section)
		if err != nil {
			return nil, Fail(Usage, "", "%s: %w", p.path, err)
		}
	}
	return values, nil
}

// Marshal is koanf's Parser; nothing is ever written.
func (p *fileParser) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

// check finds every unknown key, and remembers the line of the known ones.
func (p *fileParser) check(mapping *yaml.Node, prefix string) (err error) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name, value := mapping.Content[i], mapping.Content[i+1]
		key := prefix + name.Value
		p.from[key] = fmt.Sprintf("%s:%d", p.path, name.Line)
		switch {
		case key == providersKey:
		case p.section(key):
			if value.Kind == yaml.MappingNode {
				err = errors.Join(err, p.check(value, key+"."))
			} else if value.Tag != "!!null" {
				err = errors.Join(err, fmt.Errorf("%s:%d: %s is a section: nest its keys below it", p.path, name.Line, key))
			}
		case !knows(p.keys, key):
			err = errors.Join(err, fmt.Errorf("%s:%d: unknown key %s%s", p.path, name.Line, key, suggest(p.keys, key)))
		}
	}
	return err
}

// section reports whether keys are nested below the name.
func (p *fileParser) section(name string) bool {
	for _, k := range p.keys {
		if strings.HasPrefix(k.Name, name+".") {
			return true
		}
	}
	return false
}

// syntax turns "yaml: line 3: …" into "file:3: …".
func (p *fileParser) syntax(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		return Fail(Usage, "not valid YAML", "%s:%s: %s", p.path, m[1], text[len(m[0]):])
	}
	return Fail(Usage, "not valid YAML", "%s: %s", p.path, text)
}

var (
	yamlLine         = regexp.MustCompile(`^(?:unmarshal errors:\s*)?line (\d+): `)
	yamlLineAnywhere = regexp.MustCompile(`(?:unmarshal errors:\s*)?line \d+: `)
	unknownField     = regexp.MustCompile(`field (\S+) not found in type \S+`)
)

// expand replaces ${NAME} in every text of a value by the environment variable, and
// $${ by ${. A variable that is not set is an error: an empty secret would be a worse one.
func expand(value any, env Env, at string) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		return expandText(v, env, at)
	case map[string]any:
		for k := range v {
			if v[k], err = expand(v[k], env, at+"."+k); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = expand(v[i], env, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

var reference = regexp.MustCompile(`\$?\$\{[^}]*\}?`)

func expandText(text string, env Env, at string) (string, error) {
	var failed error
	out := reference.ReplaceAllStringFunc(text, func(ref string) string {
		if strings.HasPrefix(ref, "$$") {
			return ref[1:]
		}
		name, closed := strings.CutSuffix(ref[len("${"):], "}")
		if !closed || !variable.MatchString(name) {
			failed = errors.Join(failed, fmt.Errorf("%s: %s: write ${NAME} for an environment variable, $${ for the two characters", at, ref))
			return ref
		}
		value, ok := env.Lookup(name)
		if !ok {
			failed = errors.Join(failed, fmt.Errorf("%s: environment variable %s is not set", at, name))
		}
		return value
	})
	return out, failed
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
