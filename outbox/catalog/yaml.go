package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a file. Aliases count each time they are used.
const (
	maxFile  = 8 << 20
	maxNodes = 200_000
	maxNest  = 200
)

type valueKind string

const (
	objectKind  valueKind = "an object"
	arrayKind   valueKind = "a list"
	textKind    valueKind = "text"
	numberKind  valueKind = "a number"
	booleanKind valueKind = "true or false"
	nullKind    valueKind = "null"
	brokenKind  valueKind = "" // a problem has been reported; ask nothing of it
)

// value is a part of the file: what JSON could say, and where it stands.
type value struct {
	kind    valueKind
	path    string
	line    int
	scalar  string // text, the number as spelled, or true
	members []member
	items   []value
}

type member struct {
	name  string
	value value
}

// reader turns YAML into values: one document, the JSON part of YAML, each name once,
// numbers spelled as in JSON so that nobody's parser can round or reinterpret them.
type reader struct {
	source
	problems []Problem
	nodes    int
	inside   map[*yaml.Node]bool // what aliases are being read
}

func (r *reader) refuse(path, problem, hint string) {
	r.problems = append(r.problems, r.problem(path, problem, hint))
}

// read gives the document's value, broken if there is none.
func (r *reader) read(content []byte) value {
	r.lines = map[string]int{"": 1}
	r.inside = map[*yaml.Node]bool{}
	if len(content) > maxFile {
		r.refuse("", fmt.Sprintf("the file has more than %d bytes", maxFile), "")
		return value{}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var doc, next yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.refuse("", "the file is empty", "give lanes and operations")
		return value{}
	case err != nil:
		r.notYAML(err)
		return value{}
	}
	if err := decoder.Decode(&next); !errors.Is(err, io.EOF) {
		if err != nil {
			r.notYAML(err)
		} else {
			r.lines[""] = next.Line
			r.refuse("", "the file has a second document", "put everything into one")
		}
		return value{}
	}
	return r.value(doc.Content[0], "", 0)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *reader) notYAML(err error) {
	reason := err.Error()
	if m := yamlLine.FindStringSubmatch(reason); m != nil {
		reason = reason[len(m[0]):]
		if line, err := strconv.Atoi(m[1]); err == nil {
			r.lines[""] = line
		}
	}
	r.refuse("", "not YAML: "+reason, "")
}

func (r *reader) value(n *yaml.Node, path string, depth int) value {
	v := value{path: path, line: n.Line}
	r.lines[path] = n.Line
	if r.nodes++; r.nodes == maxNodes {
		r.refuse(path, fmt.Sprintf("the file has more than %d values, aliases counted as often as used", maxNodes), "")
	}
	if depth == maxNest {
		r.refuse(path, fmt.Sprintf("the file is more than %d levels deep", maxNest), "")
	}
	if r.nodes >= maxNodes || depth >= maxNest {
		return v
	}
	switch n.Kind {
	case yaml.AliasNode:
		if r.inside[n.Alias] {
			r.refuse(path, "the alias "+n.Value+" contains itself", "")
			return v
		}
		r.inside[n.Alias] = true
		v = r.value(n.Alias, path, depth+1)
		delete(r.inside, n.Alias)
		v.line, r.lines[path] = n.Line, n.Line
	case yaml.MappingNode:
		r.object(&v, n, depth)
	case yaml.SequenceNode:
		v.kind = arrayKind
		for i, item := range n.Content {
			v.items = append(v.items, r.value(item, path+step(i), depth+1))
		}
	case yaml.ScalarNode:
		r.scalar(&v, n)
	default:
		r.refuse(path, "not a value", "")
	}
	return v
}

func (r *reader) object(v *value, n *yaml.Node, depth int) {
	v.kind = objectKind
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, content := n.Content[i], n.Content[i+1]
		path := v.path + step(name.Value)
		line, again := seen[name.Value]
		r.lines[path] = name.Line
		switch {
		case name.Kind == yaml.ScalarNode && name.ShortTag() == "!!merge":
			r.refuse(path, "merge keys are not supported", "write the members out, or use an alias for a whole value")
		case name.Kind != yaml.ScalarNode || name.ShortTag() != "!!str":
			r.refuse(path, "a member name must be text", "put it in quotes")
		case again:
			r.refuse(path, fmt.Sprintf("given twice: here and on line %d", line), "keep one")
		default:
			seen[name.Value] = name.Line
			v.members = append(v.members, member{name.Value, r.value(content, path, depth+1)})
			r.lines[path] = name.Line
		}
	}
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func (r *reader) scalar(v *value, n *yaml.Node) {
	v.scalar = n.Value
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp":
		if n.Style == 0 && jsonNumber.MatchString(n.Value) {
			r.refuse(v.path, n.Value+" is too large for a number", "put it in quotes if it is text")
			return
		}
		v.kind = textKind
	case "!!null":
		v.kind = nullKind
	case "!!bool":
		switch v.scalar = strings.ToLower(n.Value); v.scalar {
		case "true", "false":
			v.kind = booleanKind
		default:
			r.refuse(v.path, fmt.Sprintf("%q is not true or false", n.Value), "")
		}
	case "!!int", "!!float":
		if jsonNumber.MatchString(n.Value) {
			v.kind = numberKind
			return
		}
		r.refuse(v.path, n.Value+" is not a number that JSON can spell", "write it as in 1200 or 0.5, or in quotes if it is text")
	default:
		r.refuse(v.path, "the tag "+tag+" is not supported", "")
	}
}
