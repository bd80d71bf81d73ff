package conform

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBody_AFieldOfTheBodyIsMadeAnotherEachTime(t *testing.T) {
	for _, c := range []struct{ body, pointer, before, after string }{
		{`{"a":1, "note" : "x\"y" ,"b":[]}`, "/note", `{"a":1, "note" : "x\"y-`, `" ,"b":[]}`},
		{` {"a":[{"n":7},{"n":41}]} `, "/a/1/n", ` {"a":[{"n":7},{"n":4`, `}]} `},
		{`{"a/b":{"~":"x"}}`, "/a~1b/~0", `{"a/b":{"~":"x-`, `"}}`},
		{`{"":{"":"x"}}`, "//", `{"":{"":"x-`, `"}}`},
		{`{"a":"x"}`, "", `{"a":"x"}`, ""},
		{`{"n":"a {{fresh}} b","m":5}`, "/m", `{"n":"a `, `}`},
		{"a={{fresh}}&b={{fresh}}", "", "a=", ""},
	} {
		m := &bodyGenerator{body: []byte(c.body), fresh: c.pointer}
		one, said, err := m.next()
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		two, _, _ := m.next()
		if m.varies() == (string(one) == string(two)) {
			t.Errorf("%s: first %s, then %s", c.body, one, two)
		}
		quoted, _ := json.Marshal(said)
		if text := string(one); !strings.HasPrefix(text, c.before) || !strings.HasSuffix(text, c.after) || m.varies() && !strings.Contains(text, strings.Trim(string(quoted), `"`)) {
			t.Errorf("%s became %s, and its fresh part is %q", c.body, text, said)
		}
		if json.Valid([]byte(c.body)) != json.Valid(one) {
			t.Errorf("%s is no longer JSON: %s", c.body, one)
		}
	}
}

func TestBody_AFieldThatCantBeMadeAnotherIsRejected(t *testing.T) {
	for _, c := range []struct{ body, pointer, want string }{
		{`{"a":1}`, "/b", "points to nothing"},
		{`{"a":[1]}`, "/a/01", "points to nothing"},
		{`{"a":[1]}`, "/a/-", "points to nothing"},
		{`{"a":1}`, "/a/b", "points to nothing"},
		{`{"a":1}`, "a", "not a JSON Pointer"},
		{`{"a":1.5}`, "/a", "must be a string or an integer"},
		{`{"a":null}`, "/a", "must be a string or an integer"},
		{`{"a":{}}`, "/a", "must be a string or an integer"},
		{`{"a":1`, "/a", "not JSON"},
		{``, "/a", "not JSON"},
	} {
		if _, err := newBodyGenerator([]byte(c.body), c.pointer); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v, want %q", c.pointer, c.body, err, c.want)
		}
	}
}

func TestBody_KeysAreRandomUUIDs(t *testing.T) {
	one, two := newKey(), newKey()
	if one == two || len(one) != 36 || one[14] != '4' || !strings.ContainsRune("89ab", rune(one[19])) {
		t.Errorf("keys %s and %s", one, two)
	}
}

// A pointer finds a JSON value within the document.
func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"c"}]}`), "/a/1/b")
	f.Add([]byte(`[[],{"~/":1e9}]`), "/1/~0~1")
	f.Add([]byte(`{"\u0061":1,"a":2}`), "/a")
	f.Fuzz(func(t *testing.T, doc []byte, pointer string) {
		start, end, err := findValue(doc, pointer)
		if err != nil {
			return
		}
		if start < 0 || end > len(doc) || start > end || !json.Valid(doc[start:end]) {
			t.Fatalf("%s of %s is at %d to %d", pointer, doc, start, end)
		}
	})
}
