package jsonkey

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

func TestJsonkey_TheKeyInTheBody(t *testing.T) {
	for _, c := range []struct{ doc, pointer, want, wrong string }{
		{`{"id":"k"}`, "/id", "k", ""},
		{` { "a" : { "b" : [ 1 , { "id" : "k" } ] } , "z" : null } `, "/a/b/1/id", "k", ""},
		{`{"a":["x","y"]}`, "/a/1", "y", ""},
		{`{"id":12345678901234567890}`, "/id", "12345678901234567890", ""},
		{`{"id":-5}`, "/id", "-5", ""},
		{`{"a/b":{"~c":"k"}}`, "/a~1b/~0c", "k", ""},
		{`{"":{"":"k"}}`, "//", "k", ""},
		{`{"i\u0064":"\u006b\"\\"}`, "/id", `k"\`, ""},
		{`{"x":"{\"id\":\"no\"}","id":"k"}`, "/id", "k", ""},
		{`{"x":[{"id":"no"}],"id":"k"}`, "/id", "k", ""},
		{`{"id":null}`, "/id", "", ""},
		{`{"id":1.0}`, "/id", "", "neither a string nor a whole number"},
		{`{"id":1e3}`, "/id", "", "neither a string nor a whole number"},
		{`{"id":true}`, "/id", "", "neither a string nor a whole number"},
		{`{"id":{}}`, "/id", "", "neither a string nor a whole number"},
		{`{"id":["k"]}`, "/id", "", "neither a string nor a whole number"},
		{`{"id":""}`, "/id", "", "is empty"},
		{`{}`, "/id", "", ""},
		{`[]`, "/0", "", ""},
		{`["k"]`, "/00", "", ""},
		{`["k"]`, "/-", "", ""},
		{`["k"]`, "/x", "", ""},
		{`"id"`, "/id", "", ""},
		{``, "/id", "", ""},
		{" \r\n", "/id", "", ""},
		{`{"id":"k"`, "/id", "", "not JSON"},
		{`id=k`, "/id", "", "not JSON"},
		{"\ufeff" + `{"id":"k"}`, "/id", "", "not JSON"},
		{"\xff\xfe{\x00\"\x00i\x00d\x00\"\x00:\x001\x00}\x00", "/id", "", "not JSON"},
		{"\x00{\x00\"\x00i\x00d\x00\"\x00:\x001\x00}", "/id", "", "not JSON"},
		{`{"id":"k","n":NaN}`, "/id", "", "not JSON"},
		{`{"id":"k","n":Infinity}`, "/id", "", "not JSON"},
		{`{"id":"k",}`, "/id", "", "not JSON"},
		{`{"id":"k"/**/}`, "/id", "", "not JSON"},
		{`{'id':'k'}`, "/id", "", "not JSON"},
		{`{"id":"k","n":01}`, "/id", "", "not JSON"},
		{`{"id":"k","n":"` + "\t" + `"}`, "/id", "", "not JSON"},
		{"\x0b" + `{"id":"k"}`, "/id", "", "not JSON"},
		{"\x1f\x8b{}", "/id", "", "not JSON"},
		{`{"id":"k"}{"id":"l"}`, "/id", "", "not JSON"},
		{`{"id":"k","deep":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`, "/id", "", "not JSON"},
		{`{"id":"k","id":"k"}`, "/id", "", "more than once"},
		{`{"id":"k","\u0069d":"l"}`, "/id", "", "more than once"},
		{`{"id":"k","ID":"l"}`, "/id", "", "more than once"},
		{`{"Id":"l"}`, "/id", "", "another case"},
		{"{\"id\":\"\x8e\"}", "/id", "", "not valid Unicode"},
		{`{"id":"\ud800"}`, "/id", "", "not valid Unicode"},
		{"{\"id\":\"k\",\"x\":\"\xff\"}", "/id", "", "not valid Unicode"},
		{"{\"id\":\"k\",\"i\xffd\":\"l\"}", "/id", "", "not valid Unicode"},
		{"{\"i\xffd\":\"l\"}", "/id", "", "not valid Unicode"},
		{`{"a":{"id":"k"},"a":{"id":"l"}}`, "/a/id", "", "more than once"},
		{`{"a":{"id":"k","x":1,"x":2},"id":"l","ID":"m"}`, "/a/id", "k", ""},
	} {
		pointer, err := Parse(c.pointer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pointer.find([]byte(c.doc))
		if got != c.want || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s in %s is %q, %v; want %q", c.pointer, c.doc, got, err, c.want)
		}
	}
	for _, wrong := range []string{"id", "#/id", "/a~2b", "/a~"} {
		if _, err := Parse(wrong); err == nil {
			t.Errorf("the pointer %q is taken", wrong)
		}
	}
}

// FuzzKeyInBody holds the reading of keys to encoding/json.
func FuzzKeyInBody(f *testing.F) {
	for _, doc := range []string{`{"id":"k"}`, `{"a":{"id":"k"}}`, `[{"id":["k"]}]`, `{"id":1,"\u0069d":"]}"}`, `{"a":"\\\"","id":"\ud800"}`} {
		f.Add(doc, "/id")
		f.Add(doc, "/0/a/id/0")
	}
	f.Fuzz(func(t *testing.T, doc, pointer string) {
		tokens, err := Parse(pointer)
		if err != nil {
			return
		}
		got, err := tokens.find([]byte(doc))
		if err != nil {
			return
		}
		if want := reference(doc, tokens); got != want {
			t.Fatalf("%q in %q is %q, by encoding/json %q", pointer, doc, got, want)
		}
	})
}

// reference is Pointer.find, but for names that come twice, by way of encoding/json.
func reference(doc string, tokens []string) string {
	raw := json.RawMessage(doc)
	if !json.Valid(raw) {
		return ""
	}
	for _, token := range tokens {
		var object map[string]json.RawMessage
		var array []json.RawMessage
		if json.Unmarshal(raw, &object) == nil && object != nil {
			var ok bool
			if raw, ok = object[token]; !ok {
				return ""
			}
			continue
		}
		n, err := strconv.Atoi(token)
		if json.Unmarshal(raw, &array) != nil || err != nil || strconv.Itoa(n) != token || n < 0 || n >= len(array) {
			return ""
		}
		raw = array[n]
	}
	var s string
	if json.Unmarshal(raw, &s) == nil && string(raw) != "null" {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil && !strings.ContainsAny(string(n), ".eE") && string(raw) != "null" {
		return string(n)
	}
	return ""
}
