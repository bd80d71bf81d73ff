package canonical

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var faultPosition = regexp.MustCompile(`^onlyonce: canonical JSON: .+ at byte (\d+)$`)

// FuzzCanonical compares the canonical form with that of a slow reference, and
// with that of the same document written differently.
func FuzzCanonical(f *testing.F) {
	for _, p := range slices.Concat(alike, unlike) {
		f.Add([]byte(p[0]), uint64(1))
		f.Add([]byte(`{"z":`+p[1]+`,"a":[`+p[0]+`]}`), uint64(2))
	}
	for _, doc := range []string{
		string(orders(1 << 10)), levels(10), worstOrders(40)["escapes"], worstOrders(40)["non-ASCII"], worstOrders(20)["prefixes"],
		`{"a":1,"\u0061":1}`, `{"b":1,"a":1,"b":2}`, `"\ud800"`, `"\ud800\ud800\udc00"`, "\"\xed\xa0\x80\"", "\ufeff1",
		strings.Repeat("[", 65) + strings.Repeat("]", 65), "1e1000000000000000000", "-0.0e-0", "1 2", `["\u0000\u001f\u007f"]`,
		`{"\ud83d\ude00":1,"\ufb33":2,"\ue000":3,"\ud7ff":4,"\uffff":5,"":6,"\u0000":7,"\"":8,"\\":9,"!":10,"]":11}`,
	} {
		f.Add([]byte(doc), uint64(3))
	}
	f.Fuzz(func(t *testing.T, doc []byte, seed uint64) {
		v, ok := parseTree(doc)
		c := new(Writer)
		text, err := c.Write(doc)
		if ok != (err == nil) {
			t.Fatalf("the reference accepts it: %t; we: %v", ok, err)
		}
		if err != nil {
			m := faultPosition.FindStringSubmatch(err.Error())
			if m == nil {
				t.Fatalf("no position in %q", err)
			}
			if at, _ := strconv.Atoi(m[1]); at > len(doc) {
				t.Fatalf("%v, of %d", err, len(doc))
			}
			return
		}
		if want := reference(v); string(text) != want {
			t.Fatalf("got  %s\nwant %s", text, want)
		}
		if len(text) > 6*len(doc) {
			t.Fatalf("%d bytes became %d", len(doc), len(text))
		}
		for name, same := range map[string][]byte{"itself": bytes.Clone(text), "respelled": respell(v, seed)} {
			again, err := c.Write(same)
			if err != nil || string(again) != reference(v) {
				t.Fatalf("%s: %s became %s, %v", name, same, again, err)
			}
		}
	})
}

var wellFormedPointer = regexp.MustCompile(`^(?:/(?:[^~/]|~[01])*)*$`)

// FuzzFields compares the selections of two fields with those of a slow reference.
func FuzzFields(f *testing.F) {
	const doc = `{"a":[1,{"b":2},[]],"":{"":null},"a/b":"x]}\"","~":{"é":"\n","~1":[[0],1.50]},"0":false}`
	for _, pointer := range []string{
		"", "/", "//", "/a", "/a/0", "/a/1/b", "/a/2", "/a/2/0", "/a/3", "/a/-", "/a/01", "/a/00", "/a~1b", "/~0", "/~0/é", "/~0/~01/0/0", "/~0/~01/1",
		"/0", "/1", "/a/99999999999999999999", "/a+1", "/a!/1", "a", "/~", "/~2", "/\xff", "/a/+1", "/a/1/b/c",
	} {
		f.Add([]byte(doc), pointer, "/a/1", uint64(1))
		f.Add([]byte(`[`+doc+`]`), "/0"+pointer, pointer, uint64(2))
	}
	f.Fuzz(func(t *testing.T, doc []byte, first, second string, seed uint64) {
		v, ok := parseTree(doc)
		fields := []string{first, second}
		for _, p := range fields {
			ok = ok && wellFormedPointer.MatchString(p) && utf8.ValidString(p)
		}
		w := new(Writer)
		_, err := w.Write(doc, fields...)
		if ok != (err == nil) {
			t.Fatalf("the reference accepts it: %t; we: %v", ok, err)
		}
		if !ok {
			return
		}
		slices.SortFunc(fields, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
		want := [][]byte{[]byte("tag")}
		for _, p := range slices.Compact(fields) {
			want = append(want, []byte(p), selected(v, p))
		}
		if got := w.Selected([]byte("tag")); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("got %q, want %q", got, want)
		}
		if _, err := w.Write(respell(v, seed), second, first, second); err != nil || !slices.EqualFunc(w.Selected([]byte("tag")), want, bytes.Equal) {
			t.Fatalf("written differently: %q, %v", w.Selected([]byte("tag")), err)
		}
	})
}

var arrayIndex = regexp.MustCompile(`^(?:0|[1-9][0-9]*)$`)

// selected returns the reference's canonical text of the value that pointer selects.
func selected(v tree, pointer string) []byte {
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		var next tree
		switch v := v.(type) {
		case []tree:
			if n, err := strconv.Atoi(token); err == nil && arrayIndex.MatchString(token) && n < len(v) {
				next = v[n]
			}
		case []treeField:
			for _, f := range v {
				if f.name == token {
					next = f.value
				}
			}
		}
		if next == nil {
			return nil
		}
		v = next
	}
	return []byte(reference(v))
}
