package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// pages are the Markdown files of the repository, with their text, by path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			text, err := os.ReadFile(filepath.Join(root, path))
			all[path] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	remote = regexp.MustCompile(`^[a-z]+:`)
	// Code spans and blocks may show links that are none.
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

// links are the files that a page links to, by path from the root.
func links(page, text string) (files []string) {
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		file, _, _ := strings.Cut(m[1], "#")
		if file != "" && !remote.MatchString(m[1]) {
			files = append(files, filepath.Join(filepath.Dir(page), file))
		}
	}
	return files
}

func TestLinksBetweenPagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	checked := 0
	for page, text := range pages(t) {
		for _, file := range links(page, text) {
			checked++
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, file)
			}
		}
	}
	if checked == 0 {
		t.Error("no links were found")
	}
}

func TestEveryPageIsInAnIndex(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for page := range all {
		dir, index := filepath.Dir(page), filepath.Join(filepath.Dir(page), "README.md")
		if (dir != "docs" && dir != "docs/adr") || page == index {
			continue
		}
		listed := false
		for _, file := range links(index, all[index]) {
			listed = listed || file == page
		}
		if !listed {
			t.Errorf("%s is not listed in %s", page, index)
		}
	}
}
