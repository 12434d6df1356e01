package main

import (
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

// openProviders makes every configured provider.
func openProviders(cfg cli.Config) (map[string]providers.Provider, error) {
	known := adapters()
	opened := map[string]providers.Provider{}
	for _, name := range cfg.ProviderNames() {
		kind, decode, err := cfg.Provider(name)
		if err != nil {
			return nil, err
		}
		open, ok := known[kind]
		if !ok {
			return nil, cli.Fail(cli.Usage, "give httpjson or smtp", "%s: providers.%s.adapter: unknown adapter %q", cfg.File, name, kind)
		}
		if opened[name], err = open(decode); err != nil {
			return nil, cli.Fail(cli.Usage, "see docs/configuration.md", "%s: providers.%s: %w", cfg.File, name, err)
		}
	}
	if len(opened) == 0 {
		return nil, cli.Fail(cli.Usage, "add providers to outbox-worker.yaml, see docs/configuration.md", "no provider is configured, so nothing could be sent")
	}
	return opened, nil
}
