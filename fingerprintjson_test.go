package onlyonce

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
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

// alike and unlike are the documents a payment might be sent as: what must
// agree, and what an attacker would like to agree.
var alike = [][2]string{
	{`1`, `1.0`},
	{`1`, `1e0`},
	{`1`, `10e-1`},
	{`1`, `0.1E+1`},
	{`0`, `-0`},
	{`0`, `0.000`},
	{`0`, `-0e5`},
	{`0`, `0e999999999999999999999999`},
	{`100`, `1e2`},
	{`100`, `1.00e+02`},
	{`1500`, `1.5E3`},
	{`0.000001`, `1e-6`},
	{`1e-7`, `0.0000001`},
	{`1e21`, `1000000000000000000000`},
	{`1e20`, `100000000000000000000.0`},
	{`123456789012345678901234567890`, `1.2345678901234567890123456789e29`},
	{`9007199254740993`, `9007199254740993.0`},
	{`9007199254740993`, `9.007199254740993e15`},
	{`1e400`, `10e399`},
	{`-1e-400`, `-0.1e-399`},
	{`1e999999999999999999`, `100e999999999999999997`},
	{`{"a":1,"b":2}`, `{"b":2,"a":1}`},
	{`{"a":1,"b":2}`, " {\t\"b\" :\r\n2 , \"a\" : 1 } \n"},
	{`[]`, `[ ]`},
	{`{}`, "{\n}"},
	{`{"a":{"d":1,"c":[{"f":1,"e":2}]}}`, `{"a":{"c":[{"e":2,"f":1}],"d":1}}`},
	{`{"10":1,"9":2,"é":3}`, `{"é":3,"9":2,"10":1}`},
	{`"A"`, `"\u0041"`},
	{`"é"`, `"\u00e9"`},
	{`"\u00E9"`, `"\u00e9"`},
	{`"/"`, `"\/"`},
	{`"\""`, `"\u0022"`},
	{`"\\"`, `"\u005c"`},
	{`"\u000b"`, `"\u000B"`},
	{`"\b\f\n\r\t"`, `"\u0008\u000c\u000A\u000d\u0009"`},
	{`"😀"`, `"\ud83d\ude00"`},
	{`"😀"`, `"\uD83D\uDE00"`},
	{"\"\u2028\"", `"\u2028"`},
	{"\"\x7f\"", `"\u007f"`},
	{"\"\uffff\"", `"\uffff"`},
	{`{"\u0061mount":1}`, `{"amount":1}`},
	{"\"\ufeff\"", `"\ufeff"`},
	{`"a text without escapes"`, `"a text w\u0069thout escapes"`},
}

var unlike = [][2]string{
	{`9007199254740993`, `9007199254740992`},
	{`1e400`, `1e401`},
	{`1e400`, `1.7976931348623157e308`},
	{`1e-400`, `0`},
	{`1e-400`, `-1e-400`},
	{`1`, `-1`},
	{`1`, `10`},
	{`0.1`, `0.10000000000000001`},
	{`1.1`, `11`},
	{`100000000000000000000000000000000000001`, `100000000000000000000000000000000000000`},
	{`1e999999999999999999`, `1e999999999999999998`},
	{`1`, `"1"`},
	{`1`, `[1]`},
	{`1`, `true`},
	{`0`, `false`},
	{`null`, `false`},
	{`null`, `"null"`},
	{`null`, `{}`},
	{`[]`, `{}`},
	{`[]`, `[null]`},
	{`[]`, `[[]]`},
	{`""`, `" "`},
	{`""`, `null`},
	{`"a"`, `"A"`},
	{`"a"`, `"a "`},
	{`"a"`, `"a\u0000"`},
	{`"\n"`, `"n"`},
	{`"\n"`, `"\\n"`},
	{`"\u0041"`, `"\\u0041"`},
	{`"1"`, `"1.0"`},
	{`"é"`, `"e\u0301"`},     // NFC, NFD
	{`"\u212b"`, `"\u00c5"`}, // the angstrom sign, the letter
	{`"\ufb01"`, `"fi"`},     // a ligature
	{`"\u0430"`, `"a"`},      // Cyrillic
	{`"\ufeffa"`, `"a"`},     // a zero-width no-break space
	{`"a\u200bb"`, `"ab"`},   // a zero-width space
	{`"\uff11"`, `"1"`},      // a full-width digit
	{`"ß"`, `"ss"`},          // folded
	{`"\u2028"`, `"\n"`},     // line ends
	{`"\u00a0"`, `" "`},      // blanks
	{`"\ufffd"`, `"?"`},      // replaced
	{`{"Amount":1}`, `{"amount":1}`},
	{`{"Amount":1,"amount":2}`, `{"Amount":2,"amount":1}`},
	{`{"a":1}`, `{"a":1,"b":null}`},
	{`{"a":null}`, `{}`},
	{`{"a":1,"b":2}`, `{"a":2,"b":1}`},
	{`{"a":{"b":1}}`, `{"a":1,"b":1}`},
	{`{"a":"1,\"b\":2"}`, `{"a":"1","b":"2"}`},
	{`{"a b":1}`, `{"a":1}`},
	{`{"":1}`, `{" ":1}`},
	{`[1,2]`, `[2,1]`},
	{`[1,2]`, `[12]`},
	{`[1,[2]]`, `[[1],2]`},
	{`[{"a":1},{"b":2}]`, `[{"b":2},{"a":1}]`},
	{`{"é":1}`, `{"e\u0301":1}`},
	{`[1,1]`, `[1]`},
}

func TestDocumentsThatMeanTheSameHaveOneFingerprint(t *testing.T) {
	for _, p := range alike {
		if fingerprintOf(t, p[0]) != fingerprintOf(t, p[1]) {
			t.Errorf("%s and %s differ", p[0], p[1])
		}
		a, b := `{"z":[`+p[0]+`],"a":0}`, `{"a":0e1,"z":[`+p[1]+`]}`
		if fingerprintOf(t, a) != fingerprintOf(t, b) {
			t.Errorf("%s and %s differ", a, b)
		}
	}
}

func TestDocumentsThatMeanSomethingElseHaveAnotherFingerprint(t *testing.T) {
	for _, p := range unlike {
		if fingerprintOf(t, p[0]) == fingerprintOf(t, p[1]) {
			t.Errorf("%s and %s agree", p[0], p[1])
		}
		if fingerprintOf(t, `{"a":`+p[0]+`}`, "/a") == fingerprintOf(t, `{"a":`+p[1]+`}`, "/a") {
			t.Errorf("%s and %s agree as a field", p[0], p[1])
		}
	}
}

func TestFingerprintsStayWhatTheyAre(t *testing.T) {
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

func TestAFingerprintIsThatOfTheTaggedParts(t *testing.T) {
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

func TestFieldsOfADocument(t *testing.T) {
	// The documents of RFC 6901, and what is special about arrays.
	const doc = `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"~1":9,` +
		`"é":{"😀":[10,[],{},{"\n":"x]}\\\""},null]},"0":11,"-":12,"\ufb33":13,"\u000b":14}`
	for pointer, want := range map[string]string{
		"":                                canonicalText(t, doc),
		"/foo":                            `["bar","baz"]`,
		"/foo/0":                          `"bar"`,
		"/foo/1":                          `"baz"`,
		"/":                               `0`,
		"/a~1b":                           `1`,
		"/c%d":                            `2`,
		"/e^f":                            `3`,
		"/g|h":                            `4`,
		`/i\j`:                            `5`,
		`/k"l`:                            `6`,
		"/ ":                              `7`,
		"/m~0n":                           `8`,
		"/~01":                            `9`,
		"/é":                              `{"😀":[10,[],{},{"\n":"x]}\\\""},null]}`,
		"/é/😀/0":                          `10`,
		"/é/😀/1":                          `[]`,
		"/é/😀/2":                          `{}`,
		"/é/😀/3/\n":                       `"x]}\\\""`,
		"/é/😀/4":                          `null`,
		"/0":                              `11`,
		"/-":                              `12`,
		"/\ufb33":                         `13`,
		"/\v":                             `14`,
		"/foo/2":                          "",
		"/foo/-":                          "",
		"/foo/00":                         "",
		"/foo/01":                         "",
		"/foo/+1":                         "",
		"/foo/-1":                         "",
		"/foo/1e0":                        "",
		"/foo/":                           "",
		"/foo/0/0":                        "",
		"/foo/0/":                         "",
		"/foo/99999999999999999999999999": "",
		"/Foo":                            "",
		"/fo":                             "",
		"/fooo":                           "",
		"/foo/bar":                        "",
		"/a/b":                            "",
		"/e\u0301":                        "",
		"/é/😀/1/0":                        "",
		"/é/😀/2/":                         "",
		"/é/😀/3/\\n":                      "",
		"/é/😀/4/x":                        "",
		"//":                              "",
	} {
		want := hex.EncodeToString(Fingerprint(chosenJSON, []byte(pointer), []byte(want)))
		if got := fingerprintOf(t, doc, pointer); got != want {
			t.Errorf("%q does not select what it should", pointer)
		}
	}
}

func TestTheOrderAndRepeatsOfFieldsDoNotMatter(t *testing.T) {
	doc := `{"a":1,"b":[2],"c":{"d":3}}`
	want := fingerprintOf(t, doc, "/a", "/b", "/c/d")
	for _, fields := range [][]string{{"/c/d", "/b", "/a"}, {"/b", "/a", "/b", "/c/d", "/a"}} {
		given := strings.Join(fields, " ")
		if fingerprintOf(t, doc, fields...) != want {
			t.Errorf("%q: another fingerprint", fields)
		}
		if strings.Join(fields, " ") != given {
			t.Errorf("the caller's %s became %q", given, fields)
		}
	}
}

func TestWhatIsNotAFieldDoesNotMatterAndWhatIsDoes(t *testing.T) {
	fields := []string{"/a", "/b"}
	want := fingerprintOf(t, `{"a":1,"b":null,"c":3}`, fields...)
	for _, doc := range []string{`{"b":null,"a":1.0}`, `{"a":1,"c":[4],"b":null}`} {
		if fingerprintOf(t, doc, fields...) != want {
			t.Errorf("%s differs", doc)
		}
	}
	for _, doc := range []string{`{"a":1}`, `{"a":1,"b":""}`, `{"b":1,"a":null}`, `{"a":2,"b":null}`, `{}`, `[]`, `null`} {
		if fingerprintOf(t, doc, fields...) == want {
			t.Errorf("%s agrees", doc)
		}
	}
}

func TestFieldsCannotBeConfused(t *testing.T) {
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

func TestAMalformedPointerIsAnErrorThatSaysWhatToWrite(t *testing.T) {
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

func TestARawFingerprintIsNotOneOfJSON(t *testing.T) {
	for _, doc := range []string{`1`, `{"a":1}`, `""`} {
		whole, chosen := fingerprintOf(t, doc), fingerprintOf(t, doc, "")
		raw := hex.EncodeToString(Fingerprint([]byte(doc)))
		if raw == whole || raw == chosen || whole == chosen {
			t.Errorf("%s: raw %s, whole %s, as a field %s", doc, raw, whole, chosen)
		}
	}
}

func TestCallsDoNotSeeEachOther(t *testing.T) {
	docs := [][]byte{orders(100), orders(20 << 10), orders(3000), []byte(`{"b":1,"a":`), []byte(`[1e20,-0.50,"\u0001"]`), []byte(levels(100))}
	want := make([][]byte, len(docs))
	for i, doc := range docs {
		c := new(canonical)
		if text, err := c.write(doc); err == nil {
			want[i] = Fingerprint(wholeJSON, text)
		}
	}
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := range 50 {
				k := (i*caller + i) % len(docs)
				if got, _ := FingerprintJSON(docs[k]); !bytes.Equal(got, want[k]) {
					t.Errorf("document %d has another fingerprint", k)
				}
				if _, err := FingerprintJSON(docs[k], "/version", "/orders/0/id"); (err == nil) != (want[k] != nil) {
					t.Errorf("document %d: %v", k, err)
				}
			}
		})
	}
	callers.Wait()
}
