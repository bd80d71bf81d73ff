package canonical

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// formOf returns a document's canonical form, or that of its fields.
func formOf(t *testing.T, doc string, fields ...string) string {
	t.Helper()
	w := new(Writer)
	text, err := w.Write([]byte(doc), fields...)
	if err != nil {
		t.Fatalf("%.200q: %v", doc, err)
	}
	if len(fields) > 0 {
		return fmt.Sprintf("%q", w.Selected(nil))
	}
	return string(text)
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

func TestForm_DocumentsThatMeanTheSameHaveOneForm(t *testing.T) {
	for _, p := range alike {
		if formOf(t, p[0]) != formOf(t, p[1]) {
			t.Errorf("%s and %s differ", p[0], p[1])
		}
		a, b := `{"z":[`+p[0]+`],"a":0}`, `{"a":0e1,"z":[`+p[1]+`]}`
		if formOf(t, a) != formOf(t, b) {
			t.Errorf("%s and %s differ", a, b)
		}
	}
}

func TestForm_DocumentsThatMeanSomethingElseHaveAnotherForm(t *testing.T) {
	for _, p := range unlike {
		if formOf(t, p[0]) == formOf(t, p[1]) {
			t.Errorf("%s and %s agree", p[0], p[1])
		}
		if formOf(t, `{"a":`+p[0]+`}`, "/a") == formOf(t, `{"a":`+p[1]+`}`, "/a") {
			t.Errorf("%s and %s agree as a field", p[0], p[1])
		}
	}
}

func TestForm_FieldsOfADocument(t *testing.T) {
	// The documents of RFC 6901, and special cases of arrays.
	const doc = `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"~1":9,` +
		`"é":{"😀":[10,[],{},{"\n":"x]}\\\""},null]},"0":11,"-":12,"\ufb33":13,"\u000b":14}`
	for pointer, want := range map[string]string{
		"":                                formOf(t, doc),
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
		want := fmt.Sprintf("%q", [][]byte{nil, []byte(pointer), []byte(want)})
		if got := formOf(t, doc, pointer); got != want {
			t.Errorf("%q selects %s, want %s", pointer, got, want)
		}
	}
}

func TestForm_TheOrderAndRepeatsOfFieldsDoNotMatter(t *testing.T) {
	doc := `{"a":1,"b":[2],"c":{"d":3}}`
	want := formOf(t, doc, "/a", "/b", "/c/d")
	for _, fields := range [][]string{{"/c/d", "/b", "/a"}, {"/b", "/a", "/b", "/c/d", "/a"}} {
		given := strings.Join(fields, " ")
		if formOf(t, doc, fields...) != want {
			t.Errorf("%q: another form", fields)
		}
		if strings.Join(fields, " ") != given {
			t.Errorf("the caller's %s became %q", given, fields)
		}
	}
}

func TestForm_WhatIsNotAFieldDoesNotMatterAndWhatIsDoes(t *testing.T) {
	fields := []string{"/a", "/b"}
	want := formOf(t, `{"a":1,"b":null,"c":3}`, fields...)
	for _, doc := range []string{`{"b":null,"a":1.0}`, `{"a":1,"c":[4],"b":null}`} {
		if formOf(t, doc, fields...) != want {
			t.Errorf("%s differs", doc)
		}
	}
	for _, doc := range []string{`{"a":1}`, `{"a":1,"b":""}`, `{"b":1,"a":null}`, `{"a":2,"b":null}`, `{}`, `[]`, `null`} {
		if formOf(t, doc, fields...) == want {
			t.Errorf("%s agrees", doc)
		}
	}
}

func TestForm_WritersDoNotSeeEachOther(t *testing.T) {
	docs := [][]byte{orders(100), orders(20 << 10), orders(3000), []byte(`{"b":1,"a":`), []byte(`[1e20,-0.50,"\u0001"]`), []byte(levels(100))}
	want := make([][]byte, len(docs))
	for i, doc := range docs {
		want[i], _ = new(Writer).Write(doc)
	}
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := range 50 {
				k := (i*caller + i) % len(docs)
				w := NewWriter()
				if got, _ := w.Write(docs[k]); !bytes.Equal(got, want[k]) {
					t.Errorf("document %d has another form", k)
				}
				if _, err := w.Write(docs[k], "/version", "/orders/0/id"); (err == nil) != (want[k] != nil) {
					t.Errorf("document %d: %v", k, err)
				}
				w.Release()
			}
		})
	}
	callers.Wait()
}
