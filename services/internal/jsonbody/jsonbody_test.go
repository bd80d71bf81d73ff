package jsonbody

import (
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

func TestJSONBody_ABodyThatDoesNotComeToItsEndIsAFieldError(t *testing.T) {
	for _, cause := range []error{io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, errors.New("http: invalid chunk")} {
		r := httptest.NewRequest("POST", "/", iotest.ErrReader(cause))
		_, err := Read(httptest.NewRecorder(), r, 10)
		var invalid *FieldError
		if !errors.As(err, &invalid) || *invalid != (FieldError{Detail: Unfinished}) {
			t.Errorf("%v: the error is %v", cause, err)
		}
	}
}

func TestJSONBody_ABodyOfJustTheLimitIsRead(t *testing.T) {
	for body, want := range map[string]error{`{"a":1}   `: nil, `{"a":1}    `: ErrTooLarge} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if got, err := Read(httptest.NewRecorder(), r, 10); !errors.Is(err, want) || err == nil && string(got) != body {
			t.Errorf("%q: %q, %v", body, got, err)
		}
	}
}

func TestJSONBody_AnIntegerIsWrittenAsOne(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-0": 0, "7": 7, "-9223372036854775808": -1 << 63, "9223372036854775807": 1<<63 - 1} {
		o, err := Parse([]byte(`{"n": `+text+` }`), "n")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := o.Integer("n"); err != nil || *n != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"1.0", "1e2", "9223372036854775808", `"1"`, "true", "[1]", "{}"} {
		o, err := Parse([]byte(`{"n":`+text+`}`), "n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Integer("n"); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	if n, err := (Object{}).Integer("n"); n != nil || err != nil {
		t.Errorf("absent: %v %v", n, err)
	}
}

func TestJSONBody_AnOpenObjectMayHaveOtherMembersButNoneTwice(t *testing.T) {
	o, err := ParseOpen([]byte(`{"b":[1],"a":"x"}`))
	if s, _ := o.String("a"); err != nil || s == nil || *s != "x" {
		t.Errorf("%v, %v", o, err)
	}
	for _, text := range []string{`{"a":1,"a":1}`, `{"a":{"b":1,"b":1}}`, `[]`, `{}{}`, ``} {
		if _, err := ParseOpen([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func TestJSONBody_AnArrayHasOneElementAtLeastAndAsManyAsAllowedAtMost(t *testing.T) {
	o, err := ParseOpen([]byte(`{"none":null,"empty":[],"two":[1,{"a":2}],"three":[1,2,3],"text":"[1]"}`))
	if err != nil {
		t.Fatal(err)
	}
	if list, err := o.Array("two", 2); err != nil || len(list) != 2 || string(list[1]) != `{"a":2}` {
		t.Errorf("%s, %v", list, err)
	}
	for _, name := range []string{"absent", "none", "empty", "three", "text"} {
		if list, err := o.Array(name, 2); err == nil {
			t.Errorf("%s: %s", name, list)
		}
	}
}

// Every reader understands an accepted body in the same way.
func FuzzParse(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":"x","b":1}`, `{"a":1,"a":2}`, `{"A":1}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":1}{}`, "\ufeff{}", `{"a":{"x":1,"x":2}}`, `{"\u0061":1}`, `[`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		o, err := Parse(doc, "a", "b")
		if err != nil {
			var invalid *FieldError
			if !errors.As(err, &invalid) || invalid.Detail == "" {
				t.Errorf("%q: %v", doc, err)
			}
			return
		}
		var plain map[string]json.RawMessage
		if err := json.Unmarshal(doc, &plain); err != nil || len(plain) != len(o) {
			t.Fatalf("%q: %v, and %v", doc, o, err)
		}
		for name, value := range o {
			if string(plain[name]) != string(value) {
				t.Errorf("%q: %s is %s and %s", doc, name, value, plain[name])
			}
		}
	})
}
