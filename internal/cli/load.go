package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

const (
	envPrefix   = "OUTBOX_"
	configFlag  = "config"
	configEnv   = "OUTBOX_CONFIG"
	defaultFile = "outbox-worker.yaml"
	urlKey      = "database.url"
	urlEnv      = "DATABASE_URL"

	providersKey = "providers"
)

// AddFlags defines a flag for each of the named keys: "database.url" becomes
// --database-url. A flag wins over environment and file, but only if it is given.
func AddFlags(flags *pflag.FlagSet, names ...string) {
	keys := Keys()
	for _, name := range names {
		i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
		k := keys[i] // a name that is no key is a mistake of ours, found by every test
		flags.Var(&rawFlag{text: formatValue(k.Default), kind: kindOf(k.Default), several: k.several}, k.Flag, strings.TrimSuffix(k.Help, "."))
		if _, ok := k.Default.(bool); ok {
			flags.Lookup(k.Flag).NoOptDefVal = "true"
		}
	}
}

// AddConfigFlag defines --config.
func AddConfigFlag(flags *pflag.FlagSet) {
	flags.String(configFlag, "", "`FILE` to read; ./"+defaultFile+" if there is one, or $"+configEnv)
}

// rawFlag keeps the text; Load parses it as it parses all the others.
type rawFlag struct {
	text, kind   string
	several, set bool
}

func (f *rawFlag) String() string { return f.text }
func (f *rawFlag) Type() string   { return f.kind }

func (f *rawFlag) Set(s string) error {
	if f.several && f.set {
		s = f.text + "\n" + s
	}
	f.text, f.set = s, true
	return nil
}

// Load reads the configuration: flags win over the environment (OUTBOX_DATABASE__URL
// for database.url), that over the file, that over the defaults. An unknown key or a bad
// value is an *Error that names where it stands.
func Load(e Env, flags *pflag.FlagSet) (Config, error) {
	l := loader{env: e, flags: flags, keys: Keys(), ko: koanf.New("."), from: map[string]string{}}
	for _, layer := range []func() error{l.file, l.environment, l.flagsLayer} {
		if err := layer(); err != nil {
			return Config{}, err
		}
	}
	return l.config()
}

// loader lays the sources over each other and remembers where each value came from.
type loader struct {
	env   Env
	flags *pflag.FlagSet
	keys  []Key
	ko    *koanf.Koanf
	from  map[string]string // key name to "file:line", "$NAME" or "--flag"
	path  string
}

func (l *loader) file() error {
	path, named := l.filePath()
	parser := &fileParser{path: path, env: l.env, keys: l.keys, from: l.from}
	err := l.ko.Load(file.Provider(path), parser)
	var known *Error
	switch {
	case err == nil:
		l.path = path
		return nil
	case !named && errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, fs.ErrNotExist):
		return Fail(Usage, "check --"+configFlag+" and $"+configEnv, "no configuration file %s", path)
	default:
		return Fail(Usage, "", "read %s: %w", path, err)
	}
}

// filePath is where the file is expected, and whether somebody named it.
func (l *loader) filePath() (path string, named bool) {
	if f := l.flags.Lookup(configFlag); f != nil && f.Value.String() != "" {
		return f.Value.String(), true
	}
	if path, ok := l.env.Lookup(configEnv); ok && path != "" {
		return path, true
	}
	return defaultFile, false
}

func (l *loader) environment() error {
	if url, ok := l.env.Lookup(urlEnv); ok && url != "" {
		if err := l.ko.Set(urlKey, url); err != nil {
			return err
		}
		l.from[urlKey] = "$" + urlEnv
	}
	var failed error
	err := l.ko.Load(env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return l.env.Environ },
		TransformFunc: func(name, value string) (string, any) {
			if value == "" { // as good as not set: a template that was not filled in
				return "", nil
			}
			key, err := l.keyOfEnv(name)
			if err != nil {
				failed = errors.Join(failed, err)
			}
			if key != "" {
				l.from[key] = "$" + name
			}
			return key, value
		},
	}), nil)
	if failed != nil {
		return &Error{Code: Usage, Err: failed, Hint: "see docs/configuration.md"}
	}
	return err
}

// keyOfEnv leaves names without a double underscore alone, because Kubernetes makes
// OUTBOX_WORKER_PORT of a service called outbox-worker; but not one that is a key's but
// for an underscore.
func (l *loader) keyOfEnv(name string) (string, error) {
	if !strings.Contains(name, "__") {
		for _, k := range l.keys {
			if name == strings.ReplaceAll(k.Env, "__", "_") {
				return "", fmt.Errorf("$%s is not read: two underscores separate the parts, as in %s", name, k.Env)
			}
		}
		return "", nil
	}
	key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "__", "."))
	if !l.knows(key) {
		return "", fmt.Errorf("$%s: unknown key %s%s", name, key, l.suggest(key))
	}
	return key, nil
}

func (l *loader) flagsLayer() error {
	return l.ko.Load(posflag.ProviderWithFlag(l.flags, ".", nil, func(f *pflag.Flag) (string, any) {
		i := slices.IndexFunc(l.keys, func(k Key) bool { return k.Flag == f.Name })
		if i < 0 || !f.Changed {
			return "", nil
		}
		l.from[l.keys[i].Name] = "--" + f.Name
		return l.keys[i].Name, f.Value.String()
	}), nil)
}

func (l *loader) knows(key string) bool { return knows(l.keys, key) }

func (l *loader) suggest(key string) string { return suggest(l.keys, key) }

// config turns the merged values into a Config.
func (l *loader) config() (Config, error) {
	c := Default()
	c.env, c.File = l.env, l.path
	for _, k := range l.keys {
		value := l.ko.Get(k.Name)
		if value == nil {
			continue
		}
		if items, ok := value.([]any); ok && k.several {
			var texts []string
			if err := parseList(&texts, items); err != nil {
				return Config{}, Fail(Usage, "", "%s: %s: %w", l.from[k.Name], k.Name, err)
			}
			value = strings.Join(texts, "\n")
		}
		if err := parseInto(reflect.ValueOf(&c).Elem().FieldByIndex(k.index), value, k.oneOf); err != nil {
			return Config{}, Fail(Usage, "", "%s: %s: %w", l.from[k.Name], k.Name, err)
		}
	}
	switch p := l.ko.Get(providersKey).(type) {
	case nil:
	case map[string]any:
		c.Providers = p
	default:
		return Config{}, Fail(Usage, "", "%s: providers: give a name and its settings per provider", cmp.Or(l.path, "$"+envPrefix+"PROVIDERS__…"))
	}
	return c, nil
}

// knows reports whether key is one, is above one, or belongs to a provider.
func knows(keys []Key, key string) bool {
	if key == providersKey || strings.HasPrefix(key, providersKey+".") {
		return true
	}
	return slices.ContainsFunc(keys, func(k Key) bool { return k.Name == key })
}

// suggest names the key that was probably meant.
func suggest(keys []Key, key string) string {
	best, distance := "", 4
	candidates := map[string]bool{providersKey: true}
	for _, k := range keys {
		candidates[k.Name] = true
		section, _, _ := strings.Cut(k.Name, ".")
		candidates[section] = true
	}
	for _, c := range slices.Sorted(maps.Keys(candidates)) {
		if d := editDistance(key, c); d < distance {
			best, distance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
