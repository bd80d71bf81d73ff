package storetest

import (
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

var idRules = []rule{
	{"the division into tenant, operation and key counts", distinct(divided("a", "b", "c", "/", "|", ":", "\x00", " ", ",", "\x1f"))},
	{"no part can be moved to another", distinct([]onlyonce.ID{
		{Tenant: "a", Key: "k"},
		{Operation: "a", Key: "k"},
		{Tenant: "a", Operation: "a", Key: "k"},
		{Key: "k"},
		{Key: "ak"},
		{Tenant: "k", Key: "a"},
		{Tenant: "1", Operation: "1a", Key: "k"},
		{Tenant: "1", Operation: "a1", Key: "k"},
	})},
	{"a length that is part of a key is no length", distinct([]onlyonce.ID{
		{Tenant: "\x00\x00\x00\x00\x00\x00\x00\x01a", Key: "k"},
		{Tenant: "\x00", Operation: "\x00\x00\x00\x00\x00\x00\x01a", Key: "k"},
		{Tenant: "1:a", Key: "k"},
		{Tenant: "a", Operation: "1:", Key: "k"},
		{Tenant: "a", Key: "1:k"},
	})},
	{"keys that a collation takes for the same are different", distinct(keys(
		"abc", "ABC", "Abc", "äbc", "a\u0308bc", "àbc", "ábc", "ａｂｃ", "ᵃbc", "ⓐbc", "аbc",
		"strasse", "straße", "STRASSE", "STRAẞE", "i", "I", "ı", "İ", "i\u0307", "ﬁ", "fi", "K", "\u212a", "k",
		"Å", "\u212b", "A\u030a", "ǆ", "dž", "æ", "ae", "ø", "o", "½", "1/2", "²", "2", "ſ", "s",
		"ﾊﾞ", "バ", "ば", "ハ\u3099", "\u1100\u1161", "가",
	))},
	{"keys that differ in blanks and invisible characters are different", distinct(keys(
		"abc", " abc", "abc ", "abc  ", "abc\t", "abc\n", "abc\r\n", "abc\u00a0", "abc\u3000", "abc\u200b", "ab\u200dc", "ab\u00adc",
		"\ufeffabc", "abc\x00", "abc\x00\x00", "\x00abc", "a bc", "a  bc", " ", "  ", "\x00", "\u200b",
	))},
	{"keys that are equal as numbers are different", distinct(keys(
		"1", "01", "1.0", "1e0", "+1", " 1", "0x1", "1.", "0", "-0", "00", "9223372036854775807", "9223372036854775808", "9.223372036854775807e18", "NaN", "null", "NULL", "true",
	))},
	{"keys that are no text are different", distinct(keys(
		"\xff", "\xfe", "\xff\xfe", "\ufffd", "\xc0\x80", "\x00", "\x80", "\xc3", "\xe9", "é", "e\u0301", "\xed\xa0\x80", "\xed\xa0\x81", "\xf5\x80\x80\x80", "a\xffb", "a\xfeb", "a\ufffdb", "ab",
	))},
	{"keys that mean something to a database are only keys", distinct(keys(
		"'", "''", `"`, `\`, `\\`, `\'`, "';--", "' OR '1'='1", "'); DROP TABLE onlyonce_records;--", "%", "%%", "_", "a%", "a_", "*", "?", "$1", ":a", "@a", "{x}", "{x}y", "{}", "[a]",
		"a.b", "a.*", "a.>", ">", "/", "../x", "a/b", "#", "&", "=", "`", "<b>", "&lt;", "\n", "\r\nX: y", "\x1b[0m", "\x1a", "U&'\\0061'", "x'61'", "0x61", "/*", "*/", "--",
	))},
	{"keys of every length up to the longest are different", func(t *storeTest) {
		var ids []onlyonce.ID
		for _, n := range []int{1, 2, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 254, 255, 256, 511, 512, 513, 1023, 1024} {
			long := strings.Repeat("k", n)
			ids = append(ids, keys(long, long[:n-1]+"l", "l"+long[1:])...)
		}
		distinct(unique(ids))(t)
	}},
	{"tenants and operations of 1 KiB are kept whole", func(t *storeTest) {
		kib := strings.Repeat("0123456789abcdef", 64)
		distinct([]onlyonce.ID{
			{Tenant: kib, Operation: kib, Key: kib},
			{Tenant: kib[1:] + "0", Operation: kib, Key: kib},
			{Tenant: kib[:1023] + "g", Operation: kib, Key: kib},
			{Tenant: kib, Operation: kib[:1023] + "g", Key: kib},
			{Tenant: kib, Operation: kib, Key: kib[:1023] + "g"},
			{Tenant: kib[:1023], Operation: "f" + kib[:1023], Key: kib},
			{Tenant: strings.Repeat("é", 512), Operation: strings.Repeat("日", 341), Key: strings.Repeat("🎉", 256)},
		})(t)
	}},
}

func keys(all ...string) []onlyonce.ID {
	var ids []onlyonce.ID
	for _, k := range all {
		ids = append(ids, onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: k})
	}
	return ids
}

// divided returns every way to divide the three letters, joined by each
// separator, into three parts, those with empty tenants and operations
// included.
func divided(a, b, c string, separators ...string) []onlyonce.ID {
	var ids []onlyonce.ID
	for _, sep := range separators {
		text := a + sep + b + sep + c
		for i := 0; i < len(text); i++ {
			for j := i; j < len(text); j++ {
				ids = append(ids, onlyonce.ID{Tenant: text[:i], Operation: text[i:j], Key: text[j:]})
			}
		}
	}
	return unique(ids)
}

func unique(ids []onlyonce.ID) []onlyonce.ID {
	var once []onlyonce.ID
	seen := map[onlyonce.ID]bool{}
	for _, id := range ids {
		if !seen[id] {
			once = append(once, id)
		}
		seen[id] = true
	}
	return once
}

// distinct makes a rule: each of the IDs is a command of its own, and comes
// back byte for byte.
func distinct(ids []onlyonce.ID) func(*storeTest) {
	return func(t *storeTest) {
		held := make([]onlyonce.Record, len(ids))
		for i, id := range ids {
			c := claimOn(id)
			held[i] = t.claim(c)
			if held[i].Owner != c.Owner {
				t.Fatalf("%q was taken for another command", id)
			}
		}
		for i, id := range ids {
			t.same(held[i], t.lookup(id))
			t.settle(holdOf(held[i]), completed(fmt.Sprint(i)))
		}
		for i, id := range ids {
			if got := t.claim(claimOn(id)).Result.Body; string(got) != fmt.Sprint(i) {
				t.Errorf("%q was answered %q, want %d", id, got, i)
			}
		}
		t.listed(ids)
	}
}

// listed wants a list to have exactly the records of ids, if the store lists.
func (t *storeTest) listed(ids []onlyonce.ID) {
	t.Helper()
	lister, ok := t.store.(onlyonce.Lister)
	if !ok {
		return
	}
	missing := map[onlyonce.ID]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	for r, err := range lister.List(t.ctx, onlyonce.Filter{}) {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		if !missing[r.ID] {
			t.Errorf("the list has %q, which is not there or was listed before", r.ID)
		}
		delete(missing, r.ID)
	}
	for id := range missing {
		t.Errorf("the list lacks %q", id)
	}
}
