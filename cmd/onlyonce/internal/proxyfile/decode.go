package proxyfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/internal/statuses"
	"go.yaml.in/yaml/v3"
)

// Parse decodes the text of a file, calls the functions, which may change its settings, and
// checks the result. If there are mistakes, the error is a Mistakes that lists all of them
// that can be found without opening another file. name is the file's name in them.
func Parse(name string, text []byte, change ...func(*File)) (*File, error) {
	f := New()
	f.name, f.lines = name, make(map[string]int)
	d := decoder{file: f}
	if doc := d.document(text); doc != nil {
		d.value(doc, reflect.ValueOf(f).Elem(), "")
	}
	for i := range f.Routes {
		d.inherit(reflect.ValueOf(&f.Routes[i].Settings).Elem(), reflect.ValueOf(&f.Defaults).Elem(), fmt.Sprintf("routes[%d]", i))
	}
	if err := d.mistakes.orNil(); err != nil {
		return nil, err
	}
	f.ownMethods()
	for _, fn := range change {
		fn(f)
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	return f, nil
}

// A decoder fills a File and collects the mistakes in its text.
type decoder struct {
	file     *File
	mistakes Mistakes
}

func (d *decoder) mistake(line int, at, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{File: d.file.name, Line: line, At: at, Text: plain.Mask(fmt.Sprintf(format, args...))})
}

// yamlLine splits an error of the YAML parser into the number of the line and the text.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// document returns the root node of the only document in the text, or nil if the text is empty
// or invalid.
func (d *decoder) document(text []byte) *yaml.Node {
	in := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	err := in.Decode(&doc)
	if err == nil {
		switch err := in.Decode(&more); {
		case err == nil:
			d.mistake(more.Line, "", "a second document begins here: write one, without ---")
			return nil
		case !errors.Is(err, io.EOF):
			d.syntax(err)
			return nil
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil // empty
	case err != nil:
		d.syntax(err)
		return nil
	case doc.Kind != yaml.DocumentNode || len(doc.Content) != 1:
		return nil
	}
	return doc.Content[0]
}

func (d *decoder) syntax(err error) {
	line, text := 0, err.Error()
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		line, _ = strconv.Atoi(found[1]) // 0 if the parser names none
		text = found[2]
	}
	d.mistake(line, "", "this is not YAML: %s", text)
}

// value sets v, the setting with the path at, to the value of a node.
func (d *decoder) value(n *yaml.Node, v reflect.Value, at string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // as if it were left out
	}
	if at != "" {
		d.file.lines[at] = n.Line
	}
	switch {
	case isSection(v.Type()):
		d.section(n, v, at)
	case v.Kind() == reflect.Slice:
		d.list(n, v, at)
	case v.Kind() == reflect.Map:
		d.pairs(n, v, at)
	case n.Kind != yaml.ScalarNode:
		d.mistake(n.Line, at, "this is %s: write %s", kinds[n.Kind], wanted(v))
	default:
		if text := setScalar(n, v); text != "" {
			d.mistake(n.Line, at, "%s", text)
		}
	}
}

var kinds = map[yaml.Kind]string{yaml.MappingNode: "a section", yaml.SequenceNode: "a list", yaml.ScalarNode: "one value"}

// section sets the fields of a struct to the values of a mapping.
func (d *decoder) section(n *yaml.Node, v reflect.Value, at string) {
	fields := settings(v)
	if n.Kind != yaml.MappingNode {
		d.mistake(n.Line, at, "this is %s: write a section with %s", kinds[n.Kind], names(fields))
		return
	}
	given := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		field, known := find(fields, name)
		switch first := given[name.Value]; {
		case !known:
			d.unknown(name, fields, at)
		case first > 0:
			d.mistake(name.Line, join(at, name.Value), "this is given twice, first in line %d: leave one out", first)
		default:
			given[name.Value] = name.Line
			d.value(value, field.value, join(at, name.Value))
		}
	}
}

func (d *decoder) unknown(name *yaml.Node, fields []setting, at string) {
	if name.Tag == "!!merge" {
		d.mistake(name.Line, at, "<< is not supported: write what routes share into defaults")
		return
	}
	near := ""
	for _, f := range fields {
		if alike(f.name, name.Value) {
			near = "; is it " + f.name + "?"
		}
	}
	in := "the file"
	if at != "" {
		in = at
	}
	d.mistake(name.Line, "", "there is no setting %q in %s%s Write one of %s", name.Value, in, cmp.Or(near, "."), names(fields))
}

// list sets a slice to the values of a sequence.
func (d *decoder) list(n *yaml.Node, v reflect.Value, at string) {
	if n.Kind != yaml.SequenceNode {
		d.mistake(n.Line, at, "this is %s: write a list", kinds[n.Kind])
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, element := range n.Content {
		if up, ok := v.Index(i).Addr().Interface().(*Upstream); ok {
			*up = NewUpstream()
		}
		d.value(element, v.Index(i), fmt.Sprintf("%s[%d]", at, i))
	}
}

// pairs sets a map of strings to the values of a mapping.
func (d *decoder) pairs(n *yaml.Node, v reflect.Value, at string) {
	if n.Kind != yaml.MappingNode {
		d.mistake(n.Line, at, "this is %s: write names and values, such as {X-Served-By: onlyonce}", kinds[n.Kind])
		return
	}
	pairs := make(map[string]string)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		var text string
		if _, twice := pairs[name.Value]; twice {
			d.mistake(name.Line, join(at, name.Value), "this is given twice: leave one out")
			continue
		}
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if value.Kind != yaml.ScalarNode {
			d.mistake(value.Line, join(at, name.Value), "this is %s: write a text", kinds[value.Kind])
			continue
		}
		if wrong := setScalar(value, reflect.ValueOf(&text).Elem()); wrong != "" {
			d.mistake(value.Line, join(at, name.Value), "%s", wrong)
		}
		pairs[name.Value] = text
	}
	v.Set(reflect.ValueOf(pairs))
}

// inherit copies the settings that the route with the path at leaves out.
func (d *decoder) inherit(to, from reflect.Value, at string) {
	source := settings(from)
	for i, field := range settings(to) {
		path := join(at, field.name)
		switch {
		case isSection(field.value.Type()):
			d.inherit(field.value, source[i].value, path)
		case !d.file.Given(path):
			field.value.Set(source[i].value)
		}
	}
}

// isSection reports whether values of the type are sections of the file.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[netip.Prefix]() && t != reflect.TypeFor[statuses.Range]()
}

// A setting is a field with its tags.
type setting struct {
	name, doc, example, restart string

	value reflect.Value
}

// settings returns the exported fields of a struct, including those of embedded structs.
func settings(v reflect.Value) (all []setting) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch {
		case field.Anonymous:
			all = append(all, settings(v.Field(i))...)
		case field.IsExported():
			all = append(all, setting{field.Tag.Get("yaml"), field.Tag.Get("doc"), field.Tag.Get("eg"), field.Tag.Get("restart"), v.Field(i)})
		}
	}
	return all
}

func find(fields []setting, name *yaml.Node) (setting, bool) {
	i := slices.IndexFunc(fields, func(f setting) bool { return f.name == name.Value && name.Kind == yaml.ScalarNode })
	if i < 0 {
		return setting{}, false
	}
	return fields[i], true
}

func names(fields []setting) string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return strings.Join(all, ", ")
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// alike reports whether one name may be a misspelling of the other.
func alike(a, b string) bool {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	a, b = plain(a), plain(b)
	return a == b || len(b) > 2 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) || oneEdit(a, b) || oneEdit(b, a)
}

// oneEdit reports whether changing or removing one letter of a yields b.
func oneEdit(a, b string) bool {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i < len(a) && (a[i+1:] == b[i:] || i < len(b) && a[i+1:] == b[i+1:])
}
