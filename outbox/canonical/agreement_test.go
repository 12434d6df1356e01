package canonical_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

const (
	fuzzCountEnv     = "CANONICAL_FUZZ_COUNT"
	fuzzCountDefault = 10_000
	fuzzSeedEnv      = "CANONICAL_FUZZ_SEED" // a mismatch names the seed that repeats it
	batchSize        = 1000
)

// TestGoAndSQLAgree gives generated texts to both sides and compares all they say.
// CANONICAL_FUZZ_COUNT sets how many texts, per version of Postgres.
func TestGoAndSQLAgree(t *testing.T) {
	count := intFromEnv(t, fuzzCountEnv, fuzzCountDefault)
	seed := uint64(intFromEnv(t, fuzzSeedEnv, int(time.Now().UnixNano())))
	onPostgres(t, func(t *testing.T, pool *pgxpool.Pool) {
		createTryCanonical(t, pool)
		start := time.Now()
		tally := compareBatches(t, pool, seed, (count+batchSize-1)/batchSize)
		t.Logf("%s=%d: %s", fuzzSeedEnv, seed, tally.summary(time.Since(start)))
	})
}

func intFromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// createTryCanonical makes outbox.canonical testable in batches: one that raises would
// end the batch.
func createTryCanonical(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		CREATE FUNCTION try_canonical(doc text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			RETURN outbox.canonical(doc);
		EXCEPTION WHEN data_exception OR statement_too_complex THEN
			RETURN NULL;
		END $$`)
	if err != nil {
		t.Fatal(err)
	}
}

// tally counts texts by their code, "" for those admitted.
type tally struct {
	sync.Mutex
	byCode map[canonical.Code]int
}

func (c *tally) add(code canonical.Code) {
	c.Lock()
	defer c.Unlock()
	c.byCode[code]++
}

func (c *tally) summary(took time.Duration) string {
	total := 0
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(c.byCode)) {
		total += c.byCode[code]
		parts = append(parts, fmt.Sprintf("%s %d", cmp.Or(string(code), "admitted"), c.byCode[code]))
	}
	return fmt.Sprintf("%d texts in %v: %s", total, took.Round(time.Millisecond), strings.Join(parts, ", "))
}

// compareBatches runs the batches on all processors and stops at the first difference.
func compareBatches(t *testing.T, pool *pgxpool.Pool, seed uint64, batches int) *tally {
	t.Helper()
	counts := &tally{byCode: map[canonical.Code]int{}}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !t.Failed() {
				batch := next.Add(1) - 1
				if batch >= int64(batches) {
					return
				}
				g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(batch)))}
				if err := compareBatch(t.Context(), pool, g, counts); err != nil {
					t.Errorf("batch %d of %s=%d: %v", batch, fuzzSeedEnv, seed, err)
				}
			}
		})
	}
	workers.Wait()
	return counts
}

func compareBatch(ctx context.Context, pool *pgxpool.Pool, g *generator, counts *tally) error {
	docs := make([]string, batchSize)
	for i := range docs {
		docs[i] = g.document()
	}
	admitted, err := compareAdmissions(ctx, pool, docs, counts)
	if err != nil {
		return err
	}
	return compareFills(ctx, pool, admitted)
}

// verdict is all that the database says about a text.
type verdict struct {
	answer
	Digest      []byte
	Transformed *string
}

// compareAdmissions returns the canonical forms of what was admitted.
func compareAdmissions(ctx context.Context, pool *pgxpool.Pool, docs []string, counts *tally) (admitted []string, err error) {
	rows, err := pool.Query(ctx, `
		SELECT a.canonical, a.code, a.path, outbox.digest(a.canonical), try_canonical(u.doc)
		FROM unnest($1::text[]) WITH ORDINALITY u(doc, n), outbox.admit(u.doc) a
		ORDER BY u.n`, docs)
	if err != nil {
		return nil, err
	}
	verdicts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v verdict, err error) {
		return v, row.Scan(&v.Canonical, &v.Code, &v.Path, &v.Digest, &v.Transformed)
	})
	if err != nil {
		return nil, err
	}
	for i, doc := range docs {
		out, code, err := compareVerdict(doc, verdicts[i])
		if err != nil {
			return nil, err
		}
		counts.add(code)
		if code == "" {
			admitted = append(admitted, out)
		}
	}
	return admitted, nil
}

func compareVerdict(doc string, v verdict) (out string, code canonical.Code, err error) {
	got, err := canonical.Admit([]byte(doc), 0)
	var refused *canonical.Error
	if errors.As(err, &refused) {
		if v.Canonical != nil || v.Digest != nil || str(v.Code) != string(refused.Code) || str(v.Path) != refused.Path {
			return "", "", fmt.Errorf("%.1000q: Go says %s at %q, SQL %s at %q with %s",
				doc, refused.Code, refused.Path, str(v.Code), str(v.Path), str(v.Canonical))
		}
		return "", refused.Code, compareTransform(doc, v.Transformed)
	}
	digest := canonical.Digest(got)
	if v.Code != nil || v.Path != nil || str(v.Canonical) != string(got) || string(v.Digest) != string(digest[:]) {
		return "", "", fmt.Errorf("%.1000q: Go admits %s, SQL %s, or says %s at %q", doc, got, str(v.Canonical), str(v.Code), str(v.Path))
	}
	return string(got), "", compareTransform(doc, v.Transformed)
}

// sqlTransformDepth is how deep outbox.canonical goes at least, with the default of
// max_stack_depth.
const sqlTransformDepth = 100

func compareTransform(doc string, transformed *string) error {
	got, err := canonical.Transform(nil, []byte(doc))
	if err == nil && transformed == nil && (strings.Contains(doc, `\u0000`) || strings.Count(doc, "[") > sqlTransformDepth) {
		return nil // SQL text holds no U+0000, and its stack is smaller
	}
	if (err == nil) != (transformed != nil) || err == nil && *transformed != string(got) {
		return fmt.Errorf("%.1000q: Go transforms to %s, %v; SQL to %s", doc, got, err, str(transformed))
	}
	return nil
}

// compareFills fills every text from the next one.
func compareFills(ctx context.Context, pool *pgxpool.Pool, docs []string) error {
	defaults := append(slices.Clone(docs[1:]), docs[0])
	rows, err := pool.Query(ctx, `
		SELECT outbox.fill(u.doc, u.defaults)
		FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u(doc, defaults, n)
		ORDER BY u.n`, docs, defaults)
	if err != nil {
		return err
	}
	filled, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for i, doc := range docs {
		got, err := canonical.Fill([]byte(doc), []byte(defaults[i]))
		if err != nil || string(got) != filled[i] {
			return fmt.Errorf("fill %s from %s: Go says %s, %v, SQL %s", doc, defaults[i], got, err, filled[i])
		}
	}
	return nil
}
