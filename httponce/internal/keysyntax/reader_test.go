package keysyntax

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const usualChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

var keyCases = []struct {
	in  string
	key string // "": rejected
}{
	{"k", "k"},
	{`"k"`, "k"},
	{"8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"},
	{`"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "8e03978e-40d5-43e8-bc93-6894a57f9324"},
	{"A_b-9", "A_b-9"},
	{"  k\t", "k"},
	{strings.Repeat("k", 255), strings.Repeat("k", 255)},
	{strings.Repeat("k", 256), ""},
	{`"` + strings.Repeat("k", 256) + `"`, ""},
	{"", ""},
	{" ", ""},
	{`""`, ""},
	{`"`, ""},
	{`"k`, ""},
	{`k"`, ""},
	{`"k"k`, ""},
	{`"k" "k"`, ""},
	{`""k""`, ""},
	{"a b", ""},
	{"a,b", ""},
	{"a, b", ""},
	{`"a", "b"`, ""},
	{`"a","a"`, ""},
	{"a,", ""},
	{",a", ""},
	{"ä", ""},
	{`"ä"`, ""},
	{"a\x00", ""},
	{"a\x7f", ""},
	{"\"a\x1b\"", ""},
	{"a\r\n b", ""},
	{"k\u200b", ""},
	{"\xff", ""},
	{"a.b", ""},
	{"a/b", ""},
	{"a:b", ""},
	{"a=b", ""},
	{"(a)", ""},
	{`"a b"`, ""},
	{`"a\"b"`, ""},
	{`"a\\b"`, ""},
	{`"a\b"`, ""},
	{`"\`, ""},
	{`"k\"`, ""},
	{"k;a", "k"},
	{"k;a=1;b", "k"},
	{`"k";a`, "k"},
	{`"k"; a="x;y";b=?0`, "k"},
	{"k;a=tok/en:x", "k"},
	{"k;*a=*t", "k"},
	{"k;a=-1.5;b=@-5;c=:AQI=:", "k"},
	{`k;a=%"f%c3%bc"`, "k"},
	{`k;a="\"\\"`, "k"},
	{"k;", ""},
	{"k;A=1", ""},
	{"k;a=", ""},
	{"k;a=1.", ""},
	{"k;a=.5", ""},
	{"k;a=1.2345", ""},
	{"k;a=1234567890123456", ""},
	{"k;a=-", ""},
	{"k;a=?2", ""},
	{"k;a=?", ""},
	{"k;a=:AQI=", ""},
	{"k;a=:A!:", ""},
	{`k;a="x`, ""},
	{`k;a=%"%C3%BC"`, ""},
	{`k;a=%"%c3"`, ""},
	{`k;a=%x`, ""},
	{`k;a=%"%c`, ""},
	{"k;a=@1.5", ""},
	{"k;a b", ""},
	{"k ;a", ""},
	{"k;a=1 ;b", ""},
	{"k;a;;b", ""},
	{"k;a, j", ""},
	{"k;a=(1)", ""},
	{"k;1a", ""},
}

func TestReader_AKeyIsATokenOrAStringWithParameters(t *testing.T) {
	f := NewReader(Format{Strings: true, Tokens: true, Longest: 255, Chars: usualChars})
	strict := NewReader(Format{Strings: true, Longest: 255, Chars: usualChars})
	for _, c := range keyCases {
		key, wrong := f.Read([]string{c.in})
		if c.key == "" != (wrong != "") || c.key != "" && key != c.key {
			t.Errorf("%q is read as %q, %q, want %q", c.in, key, wrong, c.key)
		}
		isString := strings.HasPrefix(strings.TrimSpace(c.in), `"`)
		if _, wrong := strict.Read([]string{c.in}); (wrong == "") != (c.key != "" && isString) {
			t.Errorf("%q, where only a string is taken: %q", c.in, wrong)
		}
	}
	for _, values := range [][]string{nil, {"k", "k"}, {"a", "b"}, {"", "k"}} {
		if _, wrong := f.Read(values); wrong == "" {
			t.Errorf("%q is taken", values)
		}
	}
}

func TestReader_AKeyMayHaveOtherCharactersWhereTheyAreAllowed(t *testing.T) {
	f := NewReader(Format{Strings: true, Tokens: true, Longest: 10, Chars: `ab/ ";\,`})
	for in, want := range map[string]string{"a/b": "a/b", `"a b"`: "a b", `"a\"b"`: `a"b`, `"\\a\\"`: `\a\`, `"a,b;a"`: "a,b;a", "a,b": "", "a b": "", "c": "", "-": ""} {
		if key, wrong := f.Read([]string{in}); key != want && wrong == "" || want != "" && wrong != "" {
			t.Errorf("%q is read as %q, %q", in, key, wrong)
		}
	}
}

func TestReader_WhereOnlyTokensAreTakenTheHeaderIsTheKey(t *testing.T) {
	f := NewReader(Format{Tokens: true, Longest: 3, Chars: usualChars})
	for in, taken := range map[string]bool{"k": true, "k-1": true, `"k"`: false, "k;x": false, " k": false, "": false, "k.1": false, "four": false} {
		key, wrong := f.Read([]string{in})
		if taken != (wrong == "") || taken && key != in {
			t.Errorf("%q is read as %q, %q", in, key, wrong)
		}
	}
	if _, wrong := f.Read([]string{"k", "k"}); wrong == "" {
		t.Error("two headers are taken")
	}
}

// keyGrammar is the same by RFC 9651's grammar.
var keyGrammar = func() *regexp.Regexp {
	const (
		str   = `"(?:[ !#-\[\]-~]|\\["\\])*"`
		num   = `-?(?:\d{1,12}\.\d{1,3}|\d{1,15})`
		token = "[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"
		item  = `(?:` + str + `|` + num + `|` + token + `|:[A-Za-z0-9+/=]*:|\?[01]|@-?\d{1,15}|%"(?:[ !#$&-~]|%[0-9a-f]{2})*")`
	)
	return regexp.MustCompile(`^[ \t]*(?:([A-Za-z0-9_-]{1,255})|"([A-Za-z0-9_-]{1,255})")(?:; *[a-z*][a-z0-9_.*-]*(?:=` + item + `)?)*[ \t]*$`)
}()

func FuzzKey(f *testing.F) {
	for _, c := range keyCases {
		f.Add(c.in)
	}
	form := NewReader(Format{Strings: true, Tokens: true, Longest: 255, Chars: usualChars})
	f.Fuzz(func(t *testing.T, in string) {
		key, wrong := form.Read([]string{in})
		m := keyGrammar.FindStringSubmatch(in)
		hasText := strings.Contains(in, `=%"`) && utf8.ValidString(in) // whose UTF-8 the grammar does not see
		if wrong == "" && m == nil || wrong != "" && m != nil && !hasText {
			t.Fatalf("%q is read as %q, %q; by the grammar %q", in, key, wrong, m)
		}
		if wrong != "" {
			return
		}
		if key != m[1]+m[2] {
			t.Fatalf("%q is read as %q, by the grammar %q", in, key, m[1]+m[2])
		}
		for _, same := range []string{key, `"` + key + `"`} {
			if again, wrong := form.Read([]string{same}); again != key || wrong != "" {
				t.Fatalf("%q is read as %q, %q", same, again, wrong)
			}
		}
	})
}

func TestReader_ARejectedKeyNamesItsCharacterAndThoseThatAreAllowed(t *testing.T) {
	usual := NewReader(Format{Strings: true, Tokens: true, Longest: 255, Chars: usualChars})
	other := NewReader(Format{Strings: true, Tokens: true, Longest: 4, Chars: "abcxyz019:/ ,"})
	for _, c := range []struct {
		form *Reader
		in   string
		want string
	}{
		{&usual, "user:42/order.7", `The key has the character ":", which is not allowed. Allowed characters: - 0-9 A-Z _ a-z.`},
		{&usual, `"a b"`, `the character " "`},
		{&usual, "a b", `the character " "`},
		{&usual, "a, b", `the character ","`},
		{&usual, "\u00e4", `the character "\u00e4"`},
		{&usual, "a\xff", "the byte 0xFF"},
		{&usual, "a\x1b[2J", `the character "\x1b"`},
		{&other, "abcd", "characters: the space , / 0 1 9 : a-c x-z."},
		{&other, "a,b", `A key with "," must be a quoted string`},
		{&other, "abcabc", "The key has 6 characters; 4 are allowed."},
	} {
		if _, wrong := c.form.Read([]string{c.in}); !strings.Contains(wrong, c.want) {
			t.Errorf("%q is rejected with %q, want %q in it", c.in, wrong, c.want)
		}
	}
}
