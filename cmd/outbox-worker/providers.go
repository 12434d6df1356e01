package main

import (
	"fmt"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

// buildProviders makes every configured provider, ready to send. It does no I/O.
func buildProviders(cfg cli.Config) (map[string]providers.Provider, error) {
	all := map[string]providers.Provider{}
	for _, name := range cfg.ProviderNames() {
		p, err := buildProvider(cfg, name)
		if err != nil {
			return nil, err
		}
		all[name] = p
	}
	return all, nil
}

func buildProvider(cfg cli.Config, name string) (providers.Provider, error) {
	adapter, decode, err := cfg.Provider(name)
	if err != nil {
		return nil, err
	}
	var p providers.Provider
	switch adapter {
	case "httpjson":
		var c httpjson.Config
		if err := decode(&c); err != nil {
			return nil, err
		}
		p, err = httpjson.New(c)
	case "smtp":
		var c smtp.Config
		if err := decode(&c); err != nil {
			return nil, err
		}
		p, err = smtp.New(c)
	default:
		err = fmt.Errorf("there is no adapter %q: httpjson or smtp", adapter)
	}
	if err != nil {
		return nil, cli.Fail(cli.Usage, "see docs/configuration.md", "providers.%s: %w", name, err)
	}
	return p, nil
}
