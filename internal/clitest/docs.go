package clitest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the generated sections of docs")

// Section compares the part of a page of docs between the comments "begin NAME" and
// "end NAME" with what it should be; go test -update writes it.
func Section(t *testing.T, page, name, want string) {
	t.Helper()
	path := filepath.Join(Root(), "docs", page)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("docs/%s has no section %q", page, name)
	}
	want = "\n" + strings.TrimSpace(want) + "\n\n"
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("docs/%s, section %q, is not current: run go test -run %s -update in this folder, and read what it changed", page, name, t.Name())
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o666); err != nil {
		t.Fatal(err)
	}
}

// Reference is a command and all below it in Markdown: what --help says. The flags that
// every command has are left to the page.
func Reference(cmd *cobra.Command) string {
	var b strings.Builder
	writeReference(&b, cmd)
	return b.String()
}

func writeReference(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
		return
	}
	fmt.Fprintf(b, "### %s\n\n%s\n\n", cmd.CommandPath(), cmd.Long)
	if cmd.Example != "" {
		fmt.Fprintf(b, "```sh\n%s\n```\n\n", unindent(cmd.Example))
	}
	writeFlags(b, cmd.LocalNonPersistentFlags())
	for _, sub := range cmd.Commands() {
		writeReference(b, sub)
	}
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	rows := ""
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		name := "`--" + f.Name
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + kind
		}
		def := ""
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" && f.DefValue != "0" {
			def = "`" + f.DefValue + "`"
		}
		rows += fmt.Sprintf("| %s` | %s | %s |\n", name, def, strings.ReplaceAll(usage, "|", "\\|"))
	})
	if rows != "" {
		fmt.Fprintf(b, "| flag | default | |\n| --- | --- | --- |\n%s\n", rows)
	}
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
