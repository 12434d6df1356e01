package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// tableSettings are the storage parameters that a migrated schema has, a line each:
// table or index, option=value; those of a table's TOAST begin with "toast.". The
// migrations decide; TestTableSettingsAreThoseOfTheMigrations prints this text anew when
// one of them has changed it.
const tableSettings = `
outbox autovacuum_vacuum_scale_factor=0.02
outcomes_settled_idx autosummarize=on
outcomes_settled_idx pages_per_range=16
`

// settingsSQL reads them as the lines of tableSettings have them. What has none is there
// with an empty option.
const settingsSQL = `-- name: doctor_settings
SELECT c.relname, c.relkind = 'i', coalesce(o.prefix || o.option, '') FROM pg_class c
LEFT JOIN LATERAL (
	SELECT '' AS prefix, unnest(c.reloptions) AS option
	UNION ALL SELECT 'toast.', unnest(t.reloptions) FROM pg_class t WHERE t.oid = c.reltoastrelid
) o ON true
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'i')
ORDER BY c.relname, 3`

// stored is a table or an index with its storage parameters.
type stored struct {
	index   bool
	options map[string]string
}

func readSettings(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
},
) (map[string]stored, error) {
	rows, err := db.Query(ctx, settingsSQL)
	if err != nil {
		return nil, err
	}
	all := map[string]stored{}
	var name, option string
	var index bool
	_, err = pgx.ForEachRow(rows, []any{&name, &index, &option}, func() error {
		if all[name].options == nil {
			all[name] = stored{index, map[string]string{}}
		}
		if key, value, ok := strings.Cut(option, "="); ok {
			all[name].options[key] = value
		}
		return nil
	})
	return all, err
}

// expectedSettings is tableSettings by table or index.
func expectedSettings() map[string][]string {
	expected := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(tableSettings)) {
		name, option, _ := strings.Cut(strings.TrimSpace(line), " ")
		expected[name] = append(expected[name], option)
	}
	return expected
}

// settings compares the storage parameters with those that the migrations set. More of
// them are nobody's mistake.
func (d *doctor) settings(ctx context.Context) (bool, error) {
	if d.newer > 0 {
		d.ok("settings", "not compared: the schema is newer than this program")
		return true, nil
	}
	have, err := readSettings(ctx, d.pool)
	if err != nil {
		return true, err
	}
	well := true
	expected := expectedSettings()
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		r, there := have[name]
		if !there {
			well = false
			d.warn("settings", "outbox-worker migrate --print has the statement that makes it", "outbox.%s is gone", name)
			continue
		}
		var set, differs []string
		for _, option := range expected[name] {
			key, want, _ := strings.Cut(option, "=")
			if got, ok := r.options[key]; !ok {
				set, differs = append(set, option), append(differs, key+" is not set")
			} else if !sameSetting(got, want) {
				set, differs = append(set, option), append(differs, key+" is "+got)
			}
		}
		if len(set) == 0 {
			continue
		}
		well = false
		statement := "ALTER TABLE outbox.%s SET (%s);"
		if r.index {
			statement = "ALTER INDEX outbox.%[1]s SET (%[2]s); REINDEX INDEX CONCURRENTLY outbox.%[1]s;"
		}
		d.warn("settings", fmt.Sprintf(statement, name, strings.Join(set, ", ")), "outbox.%s: %s; the migrations have %s",
			name, strings.Join(differs, ", "), strings.Join(set, ", "))
	}
	if well {
		d.ok("settings", "tables are as the migrations made them")
	}
	return true, nil
}

// sameSetting says whether two spellings of a storage parameter mean the same.
func sameSetting(a, b string) bool {
	if a == b {
		return true
	}
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		y, err := strconv.ParseFloat(b, 64)
		return err == nil && x == y
	}
	on := map[string]bool{"on": true, "true": true, "yes": true, "off": false, "false": false, "no": false}
	x, isBool := on[strings.ToLower(a)]
	y, alike := on[strings.ToLower(b)]
	return isBool && alike && x == y
}
