package proxyfile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/statuses"
)

// Print returns a file with the settings of f, each below a comment that explains it. In place
// of an empty setting, it has a comment with an example.
func Print(f *File) string {
	p := printer{}
	p.comment("", "Settings of onlyonce proxy, for --config. The file is reloaded on SIGHUP; changes of these settings need a restart: "+strings.Join(RestartSettings(), ", ")+" (of tls.cert, only adding or removing it). Relative paths start at the directory in which the proxy was started. Durations are written as 500ms, 30s or 24h, sizes as 64KiB or 1MiB.")
	for _, s := range settings(reflect.ValueOf(f).Elem()) {
		p.text.WriteString("\n")
		if s.name == "routes" {
			p.routes(s, f)
			continue
		}
		p.setting(s, "", true)
	}
	return p.text.String()
}

// A printer writes settings, each below the comment that explains it.
type printer struct {
	text strings.Builder
}

// width is the longest line of a comment.
const width = 100

func (p *printer) comment(indent, text string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			p.text.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	p.text.WriteString(line + "\n")
}

// setting writes one setting, below its comment if explain is true. An empty setting is
// written as a comment.
func (p *printer) setting(s setting, indent string, explain bool) {
	if explain {
		p.comment(indent, s.doc)
	}
	switch {
	case isSection(s.value.Type()):
		fmt.Fprintf(&p.text, "%s%s:\n", indent, s.name)
		for _, inner := range settings(s.value) {
			p.setting(inner, indent+"  ", explain)
		}
	case s.value.Kind() == reflect.Slice && isSection(s.value.Type().Elem()):
		p.list(s, indent)
	case s.example != "" && s.value.IsZero():
		fmt.Fprintf(&p.text, "%s# %s: %s\n", indent, s.name, s.example)
	default:
		fmt.Fprintf(&p.text, "%s%s: %s\n", indent, s.name, written(s.value))
	}
}

// list writes a list of sections, and explains the first.
func (p *printer) list(s setting, indent string) {
	fmt.Fprintf(&p.text, "%s%s:\n", indent, s.name)
	for i := range s.value.Len() {
		for j, inner := range settings(s.value.Index(i)) {
			lead := indent + "    "
			if j > 0 {
				p.setting(inner, lead, i == 0)
				continue
			}
			if i == 0 {
				p.comment(lead, inner.doc)
			}
			fmt.Fprintf(&p.text, "%s  - %s: %s\n", indent, inner.name, written(inner.value))
		}
	}
}

// exampleRoute is printed if there are no routes.
const exampleRoute = `# routes:
#   - match: POST /payments
#     upstream: main
#     key:
#       required: true
#     fingerprint:
#       mode: json
#       fields: [/amount, /currency]
#     unknown: hold
`

// routes writes the routes, each with the settings that differ from the defaults.
func (p *printer) routes(s setting, f *File) {
	p.comment("", s.doc)
	for _, field := range settings(reflect.ValueOf(&Route{}).Elem())[:2] {
		p.comment("", field.name+": "+field.doc)
	}
	if len(f.Routes) == 0 {
		p.text.WriteString(exampleRoute)
		return
	}
	p.text.WriteString("routes:\n")
	for i := range f.Routes {
		r := &f.Routes[i]
		fmt.Fprintf(&p.text, "  - match: %s\n", written(reflect.ValueOf(r.Match)))
		if r.Upstream != "" {
			fmt.Fprintf(&p.text, "    upstream: %s\n", written(reflect.ValueOf(r.Upstream)))
		}
		p.differing(reflect.ValueOf(&r.Settings).Elem(), reflect.ValueOf(&f.Defaults).Elem(), "    ")
	}
}

// differing writes the settings of a section that differ from those of base.
func (p *printer) differing(from, base reflect.Value, indent string) {
	usual := settings(base)
	for i, s := range settings(from) {
		switch {
		case reflect.DeepEqual(s.value.Interface(), usual[i].value.Interface()):
		case isSection(s.value.Type()):
			fmt.Fprintf(&p.text, "%s%s:\n", indent, s.name)
			p.differing(s.value, usual[i].value, indent+"  ")
		default:
			fmt.Fprintf(&p.text, "%s%s: %s\n", indent, s.name, written(s.value))
		}
	}
}

// written returns a value as it is written in a file.
func written(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case string:
		return quoted(value)
	case time.Duration:
		return shortDuration(value)
	case Size:
		return value.String()
	case []string:
		return list(value)
	case Prefixes:
		return list(value.Texts())
	case statuses.Set:
		texts := make([]string, len(value))
		for i, s := range value {
			texts[i] = s.String()
		}
		return list(texts)
	case map[string]string:
		var all []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			all = append(all, quoted(name)+": "+quoted(value[name]))
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	return fmt.Sprint(v.Interface())
}

// list returns a list of strings as it is written in a file.
func list(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = quoted(text)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// shortDuration returns a duration without trailing zeros: 24h, not 24h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if before, ok := strings.CutSuffix(text, "m0s"); ok {
		text = before + "m"
	}
	if before, ok := strings.CutSuffix(text, "h0m"); ok {
		text = before + "h"
	}
	return text
}

// quoted writes a string, in double quotes if it needs them.
func quoted(text string) string {
	if unquoted(text) {
		return text
	}
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteString(`\` + string(r))
		case r < ' ' || r == 0x7f || r > '~' && !strconv.IsPrint(r):
			fmt.Fprintf(&out, `\U%08X`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String() + `"`
}

// unquoted reports whether a string needs no quotes: it is a word, a path, a pattern or a URL,
// and YAML does not read it as a number, a Boolean or null.
func unquoted(text string) bool {
	if text == "" || strings.Contains(text, ": ") || strings.HasSuffix(text, ":") || strings.HasSuffix(text, " ") || strings.Contains(text, "  ") {
		return false
	}
	for i, r := range text {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		switch {
		case letter, i == 0 && r == '/':
		case i > 0 && (r >= '0' && r <= '9' || strings.ContainsRune("/._-: ", r)):
		default:
			return false
		}
	}
	return !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(text))
}
