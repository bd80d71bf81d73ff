package onlyonce

import (
	"encoding/hex"
	"fmt"
	"testing"
)

func fingerprintOf(t *testing.T, doc string, fields ...string) string {
	t.Helper()
	f, err := FingerprintJSON([]byte(doc), fields...)
	if err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	return hex.EncodeToString(f)
}

func TestFingerprintJSON_FingerprintsStayWhatTheyAre(t *testing.T) {
	const doc = `{"lines":[{"sku":"A-1","qty":2}],"amount":12.50,"note":"caf\u00e9 \ud83d\ude00\n"}`
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{nil, "b0c6b1a6de9fb667956c63cc4147224b61123f5b5423fd587da68b50e4e22a30"},
		{[]string{"/amount", "/lines/0", "/missing"}, "96f6c902d74d21740c6341e6b49f51455c17ea8b00bda40683365e58332f04b9"},
	} {
		if got := fingerprintOf(t, doc, c.fields...); got != c.want {
			t.Errorf("%q: got %s, want %s: stored fingerprints would not match any more", c.fields, got, c.want)
		}
	}
}

func TestFingerprintJSON_AFingerprintIsThatOfTheTaggedParts(t *testing.T) {
	const doc = `{"b":null,"a":1.0}`
	for _, c := range []struct {
		doc    string
		fields []string
		parts  []string
	}{
		{doc, nil, []string{"onlyonce.json.v1", `{"a":1,"b":null}`}},
		{doc, []string{"/c", "/a", "/b", "/a"}, []string{"onlyonce.json-fields.v1", "/a", "1", "/b", "null", "/c", ""}},
		{doc, []string{""}, []string{"onlyonce.json-fields.v1", "", `{"a":1,"b":null}`}},
		{doc, []string{"/a!", "/a/b", "/a"}, []string{"onlyonce.json-fields.v1", "/a", "1", "/a/b", "", "/a!", ""}},
		{`{"a":{"b":1}}`, []string{"/a!b", "/a/c"}, []string{"onlyonce.json-fields.v1", "/a/c", "", "/a!b", ""}},
	} {
		var parts [][]byte
		for _, p := range c.parts {
			parts = append(parts, []byte(p))
		}
		if got := fingerprintOf(t, c.doc, c.fields...); got != hex.EncodeToString(Fingerprint(parts...)) {
			t.Errorf("%s, fields %q: not the fingerprint of %q", c.doc, c.fields, c.parts)
		}
	}
}

func TestFingerprintJSON_FieldsCannotBeConfused(t *testing.T) {
	seen := map[string]string{}
	for _, c := range []struct {
		doc    string
		fields []string
	}{
		{`{"a":1,"b":2}`, nil},
		{`{"a":1,"b":2}`, []string{""}},
		{`{"a":1,"b":2}`, []string{"/a"}},
		{`{"a":1,"b":2}`, []string{"/b"}},
		{`{"a":1,"b":2}`, []string{"/a", "/b"}},
		{`{"a":1,"b":2}`, []string{"/a", "/c"}},
		{`{"a":1,"b":2}`, []string{"/a", ""}},
		{`{"a":1,"b":"/b2"}`, []string{"/a", "/b"}},
		{`{"a":{"b":1}}`, []string{"/a/b"}},
		{`{"a/b":1}`, []string{"/a~1b"}},
		{`{"a":1}`, nil},
		{`["/a",1]`, nil},
	} {
		name := fmt.Sprintf("%s %q", c.doc, c.fields)
		f := fingerprintOf(t, c.doc, c.fields...)
		if seen[f] != "" {
			t.Errorf("%s and %s agree", seen[f], name)
		}
		seen[f] = name
	}
}

func TestFingerprintJSON_AMalformedPointerIsAnErrorThatSaysWhatToWrite(t *testing.T) {
	for pointer, want := range map[string]string{
		"amount":   `onlyonce: JSON Pointer "amount": write "/amount"`,
		"#/amount": `onlyonce: JSON Pointer "#/amount": write "/amount"`,
		"/a~":      `onlyonce: JSON Pointer "/a~": write ~0 for ~ and ~1 for / in a name`,
		"/~2/a":    `onlyonce: JSON Pointer "/~2/a": write ~0 for ~ and ~1 for / in a name`,
		"/a~/1":    `onlyonce: JSON Pointer "/a~/1": write ~0 for ~ and ~1 for / in a name`,
		"/\xff":    `onlyonce: JSON Pointer "/\xff": write it in UTF-8`,
	} {
		for _, doc := range []string{`{"amount":1}`, `not JSON`} {
			if _, err := FingerprintJSON([]byte(doc), "/a", pointer); err == nil || err.Error() != want {
				t.Errorf("%q: got %v, want %s", pointer, err, want)
			}
		}
	}
}

func TestFingerprintJSON_ARawFingerprintIsNotOneOfJSON(t *testing.T) {
	for _, doc := range []string{`1`, `{"a":1}`, `""`} {
		whole, chosen := fingerprintOf(t, doc), fingerprintOf(t, doc, "")
		raw := hex.EncodeToString(Fingerprint([]byte(doc)))
		if raw == whole || raw == chosen || whole == chosen {
			t.Errorf("%s: raw %s, whole %s, as a field %s", doc, raw, whole, chosen)
		}
	}
}
