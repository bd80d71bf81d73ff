package proxyfile

import (
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// least is a file with no more than it must have.
const least = `store: {url: "memory://"}
tenant: {single: true}
upstreams: [{url: "http://127.0.0.1:3000"}]
`

func parse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// same reports whether two files say the same, wherever they say it.
func same(a, b *File) bool { return reflect.DeepEqual(said(a), said(b)) }

// said returns a copy of a file without its lines and without what Check made of it.
func said(f *File) File {
	c := *f
	c.name, c.lines, c.Defaults.Errors.write = "", nil, nil
	c.Upstreams, c.Routes = slices.Clone(f.Upstreams), slices.Clone(f.Routes)
	for i := range c.Upstreams {
		c.Upstreams[i].server = url.URL{}
	}
	for i := range c.Routes {
		c.Routes[i].Errors.write = nil
	}
	return c
}

func TestProxyFile_WhatAFileLeavesOutHasItsDefault(t *testing.T) {
	want := New()
	up := NewUpstream()
	up.URL = "http://127.0.0.1:3000"
	want.Store.URL, want.Tenant.Single, want.Upstreams = "memory://", true, []Upstream{up}
	if got := parse(t, least); !same(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}

func TestProxyFile_ARouteHasWhatTheDefaultsSay(t *testing.T) {
	f := parse(t, least+`
defaults:
  keep: 2h
  key: {required: true, header: X-Request-Key}
  fingerprint: {mode: json, fields: [/a, /b]}
  headers: {request: {drop: [X-One]}}
routes:
  - match: POST /orders
    keep: 3h
    key: {required: false}
    fingerprint: {fields: []}
  - match: /payments/
  - match: GET /reports
`)
	if err := f.Check(); err != nil {
		t.Errorf("what a route only inherits is told to be wrong: %v", err)
	}
	settings := said(f)
	orders, payments := settings.Routes[0], settings.Routes[1]
	if orders.Keep != 3*60*60*1e9 || orders.Key.Required || orders.Key.Header != "X-Request-Key" || len(orders.Fingerprint.Fields) != 0 || orders.Fingerprint.Mode != "json" {
		t.Errorf("orders: %+v", orders)
	}
	if !reflect.DeepEqual(payments.Settings, settings.Defaults) {
		t.Errorf("payments: %+v\nwant %+v", payments.Settings, f.Defaults)
	}
	if !reflect.DeepEqual(orders.Methods, []string{"POST"}) {
		t.Errorf("orders protects %v", orders.Methods)
	}
}

func TestProxyFile_WhatIsPrintedMeansTheSame(t *testing.T) {
	for name, f := range map[string]*File{
		"the least":  parse(t, least),
		"everything": parse(t, everything),
	} {
		text := Print(f)
		again, err := Parse("printed", []byte(text))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if !same(f, again) {
			t.Errorf("%s is printed as\n%s", name, text)
		}
		if twice := Print(again); twice != text {
			t.Errorf("%s is printed differently the second time:\n%s", name, twice)
		}
	}
}

func TestProxyFile_EverySettingIsPrintedAndExplained(t *testing.T) {
	text := Print(parse(t, least))
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		for _, s := range settings(v) {
			if s.doc == "" || !strings.HasSuffix(s.doc, ".") && !strings.HasSuffix(s.doc, "_") {
				t.Errorf("%s is not explained in a sentence: %q", s.name, s.doc)
			}
			if !strings.Contains(text, s.name+":") {
				t.Errorf("%s is not printed", s.name)
			}
			switch {
			case isSection(s.value.Type()):
				visit(s.value)
			case s.value.Kind() == reflect.Slice && isSection(s.value.Type().Elem()):
				visit(reflect.New(s.value.Type().Elem()).Elem())
			}
		}
	}
	visit(reflect.ValueOf(New()).Elem())
}

func TestProxyFile_EveryPrintedExampleIsUnderstood(t *testing.T) {
	text := Print(parse(t, least))
	for line := range strings.Lines(text) {
		comment := strings.TrimLeft(line, " ")
		name, value, ok := strings.Cut(strings.TrimPrefix(comment, "# "), ": ")
		if !strings.HasPrefix(comment, "# ") || !ok || strings.Contains(name, " ") || strings.Contains(line, "# match: ") {
			continue
		}
		indent := line[:len(line)-len(comment)]
		tried := strings.Replace(text, line, indent+name+": "+value, 1)
		_, err := Parse("p", []byte(tried))
		for _, m := range mistakes(err) { // it may contradict another, but is no mistake by itself
			if strings.Contains(m.Text, " is not valid here") || strings.Contains(m.Text, "there is no setting") || strings.Contains(m.Text, "\" is no ") || strings.Contains(m.Text, "this is a ") {
				t.Errorf("%s%v", line, m)
			}
		}
	}
	rest := strings.TrimPrefix(exampleRoute, "# ")
	parse(t, least+strings.ReplaceAll(rest, "\n# ", "\n"))
}

func mistakes(err error) Mistakes {
	var all Mistakes
	errors.As(err, &all)
	return all
}

func TestProxyFile_EveryMistakeIsNamedWithItsLineAndWhatToWrite(t *testing.T) {
	for text, want := range mistaken {
		t.Run(text, func(t *testing.T) {
			if !strings.HasPrefix(text, "!") {
				text = least + text
			}
			f, err := Parse("p.yaml", []byte(strings.TrimPrefix(text, "!")))
			if err == nil {
				t.Fatalf("it is taken for\n%s", Print(f))
			}
			if err.Error() != want {
				t.Errorf("%v\nwant\n%s", err, want)
			}
		})
	}
}

func TestProxyFile_AllMistakesAreFoundAtOnce(t *testing.T) {
	_, err := Parse("p.yaml", []byte(`listen: here
keep: 1h
tenant: {header: X, single: true}
upstreams:
  - url: ftp://x
routes:
  - match: POST
    wait: soon
  - match: POST /a
    unknown: maybe
`))
	if all := mistakes(err); len(all) != 2 {
		t.Errorf("%d mistakes, want the 2 of which nothing can be read:\n%v", len(all), err)
	}
	_, err = Parse("p.yaml", []byte(`listen: here
tenant: {header: X, single: true}
upstreams:
  - url: ftp://x
routes:
  - match: POST
  - match: POST /a
    unknown: maybe
`))
	var lines []int
	for _, m := range mistakes(err) {
		lines = append(lines, m.Line)
	}
	if want := []int{1, 2, 4, 6, 8}; !reflect.DeepEqual(lines, want) {
		t.Errorf("mistakes in lines %v, want %v:\n%v", lines, want, err)
	}
}
