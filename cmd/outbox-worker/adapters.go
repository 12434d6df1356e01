package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

// adapter makes a provider from its settings in the configuration.
type adapter func(decode func(into any) error) (providers.Provider, error)

// adapters are the kinds of provider that a configuration can name. To add one, write
// its package under providers and a line here.
func adapters() map[string]adapter {
	return map[string]adapter{
		"httpjson": configured(httpjson.New),
		"smtp":     configured(smtp.New),
	}
}

func configured[C any, P providers.Provider](open func(C) (P, error)) adapter {
	return func(decode func(into any) error) (providers.Provider, error) {
		var c C
		if err := decode(&c); err != nil {
			return nil, err
		}
		return open(c)
	}
}

// openProviders makes every configured provider; one at least. It does no I/O.
func openProviders(cfg cli.Config) (map[string]providers.Provider, error) {
	opened := map[string]providers.Provider{}
	for _, name := range cfg.ProviderNames() {
		p, err := openProvider(cfg, name)
		if err != nil {
			return nil, err
		}
		opened[name] = p
	}
	if len(opened) == 0 {
		return nil, cli.Fail(cli.Usage, "add providers to outbox-worker.yaml, see docs/configuration.md", "no provider is configured, so nothing could be sent")
	}
	return opened, nil
}

// openProvider makes one; what is wrong with its settings is an *cli.Error.
func openProvider(cfg cli.Config, name string) (providers.Provider, error) {
	kind, decode, err := cfg.Provider(name)
	if err != nil {
		return nil, err
	}
	open, ok := adapters()[kind]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(adapters())), " or ")
		return nil, cli.Fail(cli.Usage, "give "+known, "providers.%s.adapter: there is no adapter %q", name, kind)
	}
	p, err := open(decode)
	if err != nil {
		if _, ok := err.(*cli.Error); ok {
			return nil, err // the settings could not be read, and it says where
		}
		return nil, cli.Fail(cli.Usage, "see docs/configuration.md", "providers.%s: %w", name, err)
	}
	return p, nil
}
