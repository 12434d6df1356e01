package catalog_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// The page's example is a catalog, and every field has its row.
func TestDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/catalog.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(examples) != 1 {
		t.Fatalf("%d examples", len(examples))
	}
	c := parse(t, examples[0][1])
	classes := map[catalog.Class]bool{}
	for _, o := range c.Operations {
		classes[o.Class] = true
		if _, err := o.Compile(); err != nil {
			t.Error(err)
		}
	}
	if len(c.Operations) < 4 || len(classes) < 4 {
		t.Error("the example shows too little")
	}
	fields := append(fieldsOf(reflect.TypeFor[catalog.Operation](), ""), fieldsOf(reflect.TypeFor[catalog.Lane](), "")...)
	for _, field := range fields {
		if !strings.Contains(string(page), "\n| `"+field+"` |") {
			t.Errorf("there is no row for %s", field)
		}
	}
}

// fieldsOf lists the fields of a struct as the page names them: retry.max_attempts.
func fieldsOf(t reflect.Type, prefix string) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, prefix+name)
		of := f.Type
		if of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct && of != reflect.TypeFor[catalog.Duration]() {
			names = append(names, fieldsOf(of, prefix+name+".")...)
		}
	}
	return names
}
