package storetest

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

var resultRules = []rule{
	{"an empty result comes back", comesBack(onlyonce.Result{})},
	{"an empty body comes back", comesBack(onlyonce.Result{Status: 204, Body: []byte{}, Header: map[string][]string{}})},
	{"a body of every byte comes back", comesBack(onlyonce.Result{Status: 200, Body: everyByte()})},
	{"a body of 1 MiB comes back", comesBack(onlyonce.Result{Status: 200, Body: bytes.Repeat(everyByte(), 4096)})},
	{"a body that looks like SQL or JSON comes back", comesBack(onlyonce.Result{
		Body: []byte(`{"a": "';--\u0000", "b": null}\` + "\n%s %d $1 :a ? /* */ NULL\x00"),
	})},
	{"every status comes back", func(t *storeTest) {
		for _, status := range []int{0, 1, 100, 200, 201, 204, 299, 404, 418, 500, 599, 999, -1, math.MinInt32, math.MaxInt32} {
			t.comesBack(fmt.Sprint(status), onlyonce.Result{Status: status})
		}
	}},
	{"a header's values keep their order and number", comesBack(onlyonce.Result{Header: map[string][]string{
		"Link":  {"<b>", "<a>", "<b>", "<c>", "<a>"},
		"Vary":  {"Accept, Origin", "Accept"},
		"Empty": {""},
		"Blank": {"", " ", "", "\t"},
	}})},
	{"a header's names keep their case", comesBack(onlyonce.Result{Header: map[string][]string{
		"ETag": {`"1"`}, "Etag": {`"2"`}, "etag": {`"3"`}, "X-Ünïcode": {"4"}, "": {"no name"},
	}})},
	{"a header's values keep every byte", func(t *storeTest) {
		header := map[string][]string{"All": {string(everyByte())}}
		for _, b := range everyByte() {
			header["Each"] = append(header["Each"], "a"+string([]byte{b})+"z")
		}
		t.comesBack("k", onlyonce.Result{Header: header})
	}},
	{"a header of many names and long values comes back", func(t *storeTest) {
		header := map[string][]string{}
		for i := range 200 {
			header[fmt.Sprintf("X-%d", i)] = []string{strings.Repeat("v", i), fmt.Sprint(i)}
		}
		header["Long"] = []string{strings.Repeat("long ", 8<<10)}
		t.comesBack("k", onlyonce.Result{Header: header})
	}},
	{"references and errors of any text come back", func(t *storeTest) {
		for i, text := range []string{
			"", " ", "order-1", "Ünïcode ✓ 🎉 日本語 \u202e\u0301", `'"\;--%_{}[]<>&$1?:a`, "a\nb\r\tc\x1b[0m\x7f",
			strings.Repeat("long ", 400), "NULL", "0", "trailing blank ",
		} {
			s := failedForGood(text)
			s.Result.Ref = text
			r := t.complete(claimOf(fmt.Sprint(i)), s)
			if r.Error != text || r.Result.Ref != text {
				t.Errorf("error %q and reference %q came back from %q", r.Error, r.Result.Ref, text)
			}
		}
	}},
	{"references and errors that are not text lose at most what is not", func(t *storeTest) {
		for i, text := range []string{"a\x00b", "\x00", "\xff", "a\xc3", "\xed\xa0\x80z", "caf\xe9\x00"} {
			s := failedForGood(text)
			s.Result.Ref = text
			r := t.complete(claimOf(fmt.Sprint(i)), s)
			if textOf(r.Error) != textOf(text) || textOf(r.Result.Ref) != textOf(text) {
				t.Errorf("error %q and reference %q came back from %q", r.Error, r.Result.Ref, text)
			}
		}
	}},
	{"a failure and an unknown outcome have results too", func(t *storeTest) {
		for i, s := range endings {
			s.Result = onlyonce.Result{Status: 409, Header: map[string][]string{"A": {"1"}}, Body: []byte("no"), Ref: "order-2"}
			t.sameResult(s.Result, t.complete(claimOf(fmt.Sprint(i)), s).Result)
		}
	}},
}

func comesBack(want onlyonce.Result) func(*storeTest) {
	return func(t *storeTest) { t.comesBack("k", want) }
}

// comesBack wants a result to be what every method then returns.
func (t *storeTest) comesBack(key string, want onlyonce.Result) {
	t.Helper()
	c := claimOf(key)
	r := t.complete(c, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: want, Keep: long})
	t.sameResult(want, r.Result)
	t.sameResult(want, t.claim(newCaller(c)).Result)
	if lister, ok := t.store.(onlyonce.Lister); ok {
		for r, err := range lister.List(t.ctx, onlyonce.Filter{Key: key}) {
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			t.sameResult(want, r.Result)
		}
	}
}

func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// textOf returns what every store can keep of a text: its valid characters
// other than NUL.
func textOf(s string) string {
	return strings.Map(func(r rune) rune {
		if r == 0 || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}
