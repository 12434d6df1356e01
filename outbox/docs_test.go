package outbox_test

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what psql prints into the page")

// pageBlock is a fenced block of a page, or an instruction to its test.
type pageBlock struct{ info, text string }

var pageBlocks = regexp.MustCompile("(?ms)^```([a-z ]+)\n(.*?)^```$|^<!-- run: (.*?) -->$")

func blocksOf(t *testing.T, page string) (blocks []pageBlock) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pageBlocks.FindAllStringSubmatch(string(text), -1) {
		if m[3] != "" {
			blocks = append(blocks, pageBlock{"run", m[3]})
		} else {
			blocks = append(blocks, pageBlock{m[1], m[2]})
		}
	}
	return blocks
}

// The page on SQL shows what psql prints.
func TestThePageOnSQLIsTrue(t *testing.T) {
	t.Parallel()
	needPsql(t)
	b := setup(t)
	b.exec("UPDATE outbox.ledger SET id = '00000000-0000-4000-8000-000000000000'")
	b.exec("GRANT CREATE ON SCHEMA public TO outbox_app")
	blocks := blocksOf(t, "../docs/enqueue-from-sql.md")
	sessions := map[string]*psql{"sql": startPsqlWith(b, "-X"), "sql second": startPsqlWith(b, "-X")}
	settle := map[string]func(){
		"the card of order 1042 is charged": func() {
			b.settleAs("1042", "INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id, result) VALUES ($1, 1, 'succeeded', 'ch_1', '{\"last_digits\":\"4242\"}')")
		},
		"the card of order 1043 is declined": func() {
			b.settleAs("1043", "INSERT INTO outbox.outcomes (intent_id, attempt, state, code, reason) VALUES ($1, 1, 'failed_final', 'card_declined', 'Do not honour.')")
		},
	}
	var printed []string
	for i, block := range blocks {
		switch block.info {
		case "yaml":
			b.apply(block.text)
		case "run":
			settle[block.text]()
		case "sql", "sql second":
			got, err := sessions[block.info].run(block.text)
			if err != nil {
				t.Fatalf("%s: %v", block.text, err)
			}
			if i+1 == len(blocks) || blocks[i+1].info != "text" {
				t.Fatalf("nothing is printed for %s", block.text)
			}
			got = trimLines(got)
			if want := trimLines(blocks[i+1].text); got != want && !*update {
				t.Errorf("%s prints\n%s\nand not\n%s", block.text, got, want)
			}
			printed = append(printed, got)
		}
	}
	if len(printed) < 10 {
		t.Errorf("only %d examples", len(printed))
	}
	if *update {
		b.must(rewrite("../docs/enqueue-from-sql.md", printed))
	}
}

// trimLines leaves out the spaces at the ends of lines, which editors do too.
func trimLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n "), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// rewrite puts what was printed into the page's text blocks.
func rewrite(page string, printed []string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	n := -1
	return os.WriteFile(page, regexp.MustCompile("(?ms)^```text\n.*?^```$").ReplaceAllFunc(text, func([]byte) []byte {
		n++
		return []byte("```text\n" + printed[n] + "\n```")
	}), 0o666)
}

// settleAs ends the intent of an order with the outcome given.
func (b *testBundle) settleAs(order, outcome string) {
	b.t.Helper()
	id := query[int64](b, "DELETE FROM outbox.outbox o USING outbox.intents i WHERE i.id = o.intent_id AND i.key = $1 RETURNING i.id", `["`+order+`"]`)
	b.exec(outcome, id)
}

// The page lists every parameter of the function, in its order.
func TestThePageOnSQLListsEveryParameter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, err := os.ReadFile("../docs/enqueue-from-sql.md")
	b.must(err)
	_, text2, _ := strings.Cut(string(text), "\n## Parameters\n")
	table, _, _ := strings.Cut(text2, "\n## ")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z\\[\\]]+) \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1]+" "+m[2])
	}
	want := query[string](b, `SELECT string_agg(name || ' ' || replace(replace(format_type(type, NULL), 'timestamp with time zone', 'timestamptz'), 'integer', 'int'), ', ' ORDER BY n)
		FROM pg_proc p, unnest(p.proargnames, p.proargtypes) WITH ORDINALITY a(name, type, n) WHERE p.oid = 'outbox.enqueue'::regproc`)
	if strings.Join(got, ", ") != want {
		t.Errorf("the page lists\n%s, the function has\n%s", strings.Join(got, ", "), want)
	}
}

// The snippet runs where its language is at hand.
func TestThePageOnSQLRunsInPython(t *testing.T) {
	t.Parallel()
	python := ""
	for _, program := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), program, "-c", "import psycopg").Run() == nil {
			python = program
			break
		}
	}
	if python == "" {
		t.Skip("no Python with psycopg")
	}
	b := setup(t)
	b.exec("CREATE TABLE orders (id text PRIMARY KEY, amount int); GRANT INSERT, SELECT ON orders TO outbox_app")
	for _, block := range blocksOf(t, "../docs/enqueue-from-sql.md") {
		switch block.info {
		case "yaml":
			b.apply(block.text)
		case "python":
			cmd := exec.CommandContext(t.Context(), python, "-c", strings.ReplaceAll(block.text, "postgres:///shop", b.url))
			cmd.Env = append(os.Environ(), "PGOPTIONS=-c role=outbox_app")
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "accepted\n" {
				t.Errorf("%v: %s", err, out)
			}
		}
	}
	b.wantRows(rows{intents: 1, open: 1})
	if n := query[int](b, "SELECT count(*) FROM orders"); n != 1 {
		t.Errorf("%d orders", n)
	}
}
