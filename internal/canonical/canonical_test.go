package canonical

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestCanonical_FormIsThatOfRFC8785sPublishedExamples(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{
			"serialization, but for the number with more digits than a double has",
			`{
				"numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
				"string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
				"literals": [null, true, false]
			}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		{
			"sorting",
			`{
				"\u20ac": "Euro Sign",
				"\r": "Carriage Return",
				"\ufb33": "Hebrew Letter Dalet With Dagesh",
				"1": "One",
				"\ud83d\ude00": "Emoji: Grinning Face",
				"\u0080": "Control",
				"\u00f6": "Latin Small Letter O With Diaeresis"
			}`,
			`{"\r":"Carriage Return","1":"One",` + "\"\u0080\"" + `:"Control","ö":"Latin Small Letter O With Diaeresis",` +
				`"€":"Euro Sign","😀":"Emoji: Grinning Face",` + "\"\ufb33\"" + `:"Hebrew Letter Dalet With Dagesh"}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := formOf(t, c.doc); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestCanonical_NumbersAreThoseOfRFC8785sAppendixB(t *testing.T) {
	for _, c := range []struct {
		double uint64
		want   string
	}{
		{0x0000000000000000, "0"},
		{0x8000000000000000, "0"},
		{0x0000000000000001, "5e-324"},
		{0x8000000000000001, "-5e-324"},
		{0x7fefffffffffffff, "1.7976931348623157e+308"},
		{0xffefffffffffffff, "-1.7976931348623157e+308"},
		{0x4340000000000000, "9007199254740992"},
		{0xc340000000000000, "-9007199254740992"},
		{0x4430000000000000, "295147905179352830000"},
		{0x44b52d02c7e14af5, "9.999999999999997e+22"},
		{0x44b52d02c7e14af6, "1e+23"},
		{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
		{0x444b1ae4d6e2ef4e, "999999999999999700000"},
		{0x444b1ae4d6e2ef4f, "999999999999999900000"},
		{0x444b1ae4d6e2ef50, "1e+21"},
		{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
		{0x3eb0c6f7a0b5ed8d, "0.000001"},
		{0x41b3de4355555553, "333333333.3333332"},
		{0x41b3de4355555554, "333333333.33333325"},
		{0x41b3de4355555555, "333333333.3333333"},
		{0x41b3de4355555556, "333333333.3333334"},
		{0x41b3de4355555557, "333333333.33333343"},
		{0xbecbf647612f3696, "-0.0000033333333333333333"},
		{0x43143ff3c1cb0959, "1424953923781206.2"},
	} {
		shortest := strconv.FormatFloat(math.Float64frombits(c.double), 'e', -1, 64)
		for _, doc := range []string{shortest, c.want} {
			if got := formOf(t, doc); got != c.want {
				t.Errorf("%s: got %s, want %s", doc, got, c.want)
			}
		}
	}
}

func TestCanonical_NumbersKeepTheDigitsADoubleLoses(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{"333333333.33333329", "333333333.33333329"},
		{"9007199254740993", "9007199254740993"},
		{"-9007199254740993.0", "-9007199254740993"},
		{"115792089237316195423570985008687907853269984665640564039457584007913129639935", "1.15792089237316195423570985008687907853269984665640564039457584007913129639935e+77"},
		{"1e400", "1e+400"},
		{"-1e-400", "-1e-400"},
		{"0.1000000000000000055511151231257827021181583404541015625", "0.1000000000000000055511151231257827021181583404541015625"},
	} {
		if got := formOf(t, c.doc); got != c.want {
			t.Errorf("%s: got %s, want %s", c.doc, got, c.want)
		}
	}
}

func TestCanonical_NumbersWithHugeExponentsAreExactOrRejected(t *testing.T) {
	const most = "999999999999999999"
	for _, c := range []struct{ doc, want string }{
		{"1e" + most, "1e+" + most},
		{"1e-" + most, "1e-" + most},
		{"0.1e1000000000000000000", "1e+" + most},
		{"10e-1000000000000000000", "1e-" + most},
		{"1e00000000000000000000000000000000000000000002", "100"},
		{"0e999999999999999999999", "0"},
		{"-0.00e-999999999999999999999", "0"},
		{"1" + strings.Repeat("0", 1000) + "e-1000", "1"},
	} {
		if got := formOf(t, c.doc); got != c.want {
			t.Errorf("%.60s: got %s, want %s", c.doc, got, c.want)
		}
	}
	for _, doc := range []string{
		"1e1000000000000000000", "10e" + most, "1e-1000000000000000000", "0.1e-" + most,
		"1e9223372036854775808", "1e18446744073709551617", "1e999999999999999999999", "1e-999999999999999999999",
	} {
		if text, err := new(Writer).Write([]byte(doc)); err == nil {
			t.Errorf("%s: got %s, want an error", doc, text)
		}
	}
}

func TestCanonical_FormRejectsWhatIsNotOneClearDocument(t *testing.T) {
	for _, c := range []struct {
		doc  string
		what string
		at   int
	}{
		{"", "no value", 0},
		{" \n", "no value", 2},
		{"\ufeff1", "a byte order mark", 0},
		{"\xff\xfe1\x00", "no value", 0},
		{"1 2", "more than one value", 2},
		{"{}}", "more than one value", 2},
		{"1\x00", "more than one value", 1},
		{"1,", "more than one value", 1},
		{"nul", "no value", 0},
		{"nullx", "more than one value", 4},
		{"True", "no value", 0},
		{"NaN", "no value", 0},
		{"Infinity", "no value", 0},
		{"-", "no value", 0},
		{"-Infinity", "no value", 0},
		{"+1", "no value", 0},
		{".5", "no value", 0},
		{"01", "a leading zero", 0},
		{"-01", "a leading zero", 1},
		{"1.", "no digit", 2},
		{"1.e5", "no digit", 2},
		{"1e", "no digit", 2},
		{"1e+", "no digit", 3},
		{"0x10", "more than one value", 1},
		{"1_000", "more than one value", 1},
		{"[1,]", "no value", 3},
		{"[,1]", "no value", 1},
		{"[1 2]", "neither , nor ]", 3},
		{"[1", "neither , nor ]", 2},
		{"[1}", "neither , nor ]", 2},
		{"[", "no value", 1},
		{"[1]]", "more than one value", 3},
		{"{", "no member name", 1},
		{`{"a"}`, "no colon", 4},
		{`{"a" 1}`, "no colon", 5},
		{`{"a":}`, "no value", 5},
		{`{"a":1,}`, "no member name", 7},
		{`{"a":1]`, "neither , nor }", 6},
		{`{a:1}`, "no member name", 1},
		{`{'a':1}`, "no member name", 1},
		{`{1:1}`, "no member name", 1},
		{"[1]//x", "more than one value", 3},
		{"\u00a01", "no value", 0},
		{"\v1", "no value", 0},
		{`"abc`, "no end of a string", 4},
		{`"abcdefghijk`, "no end of a string", 12},
		{`"abc\`, "an unknown escape", 4},
		{`"\x41"`, "an unknown escape", 1},
		{`"\U0041"`, "an unknown escape", 1},
		{`"\u12"`, "an unknown escape", 1},
		{`"\u12g4"`, "an unknown escape", 1},
		{`"\u+123"`, "an unknown escape", 1},
		{`"\'"`, "an unknown escape", 1},
		{`"\v"`, "an unknown escape", 1},
		{"\"a\nb\"", "a control character in a string", 2},
		{"\"a\tb\"", "a control character in a string", 2},
		{"\"\x00\"", "a control character in a string", 1},
		{"\"abcdefghij\x1fklmnopqrst\"", "a control character in a string", 11},
		{`"\ud800"`, "a lone surrogate", 1},
		{`"ab\udc00"`, "a lone surrogate", 3},
		{`"\ud800\ud800"`, "a lone surrogate", 1},
		{`"\ud800x"`, "a lone surrogate", 1},
		{`"\ud800\n"`, "a lone surrogate", 1},
		{`"\ude00\ud83d"`, "a lone surrogate", 1},
		{`{"\ud800":1}`, "a lone surrogate", 2},
		{"\"\xff\"", "invalid UTF-8", 1},
		{"\"abc\xc3\"", "invalid UTF-8", 4},
		{"\"é\xc0\xaf\"", "invalid UTF-8", 3},
		{"\"\xed\xa0\x80\"", "invalid UTF-8", 1},
		{"\"\xf4\x90\x80\x80\"", "invalid UTF-8", 1},
		{"\"\xc3\\n\xa9\"", "invalid UTF-8", 1},
		{"\"a long string of ASCII \xe2\x82\"", "invalid UTF-8", 24},
		{"{\"\xff\":1}", "invalid UTF-8", 2},
		{`{"a":1,"a":1}`, "a second member of the same name", 7},
		{`{"a":1,"\u0061":1}`, "a second member of the same name", 7},
		{`{"b":1,"a":1,"b":2}`, "a second member of the same name", 13},
		{`{"é":1,"a":2,"\u00e9":3}`, "a second member of the same name", 14},
		{`{"":1,"":2}`, "a second member of the same name", 6},
		{`{"x":1,"":1,"":2}`, "a second member of the same name", 12},
		{`{"a/b":1,"a\/b":2}`, "a second member of the same name", 9},
		{`{"\n":1,"\u000a":2}`, "a second member of the same name", 8},
		{`{"\u001f":1,"\u001F":2}`, "a second member of the same name", 12},
		{`{"😀":1,"\ud83d\uDE00":2}`, "a second member of the same name", 10},
		{`{"a long name of a member":1,"a":0,"a long name of a member":2}`, "a second member of the same name", 35},
		{`[{"a":{"b":1,"b":2}}]`, "a second member of the same name", 13},
		{"1e1000000000000000000", "an exponent of more than 18 digits", 0},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), "more than 64 levels", 64},
		{strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), "more than 64 levels", 320},
		{strings.Repeat("[", 1<<20), "more than 64 levels", 64},
	} {
		want := fmt.Sprintf("onlyonce: canonical JSON: %s at byte %d", c.what, c.at)
		if text, err := new(Writer).Write([]byte(c.doc)); err == nil {
			t.Errorf("%.40q: got %s, want an error", c.doc, text)
		} else if err.Error() != want {
			t.Errorf("%.40q: got %q, want %q", c.doc, err, want)
		}
	}
}

func TestCanonical_StringsEscapeNoMoreThanTheyMust(t *testing.T) {
	var doc, want strings.Builder
	short := map[rune]string{'\b': `\b`, '\t': `\t`, '\n': `\n`, '\f': `\f`, '\r': `\r`, '"': `\"`, '\\': `\\`}
	for r := rune(0); r <= 0x10ffff; r++ {
		if 0x300 < r && r < 0xd700 || 0xd800 <= r && r < 0xe000 || 0x10100 < r && r < 0x10ff00 {
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&doc, `\u%04x`, unit)
		}
		switch text, ok := short[r]; {
		case ok:
			want.WriteString(text)
		case r < ' ':
			fmt.Fprintf(&want, `\u%04x`, r)
		default:
			want.WriteRune(r)
		}
	}
	if got := formOf(t, `"`+doc.String()+`"`); got != `"`+want.String()+`"` {
		t.Error("another string")
	}
	if got := formOf(t, `"`+want.String()+`"`); got != `"`+want.String()+`"` {
		t.Error("the canonical string is not its own canonical form")
	}
}

func TestCanonical_SixtyFourLevelsAreFine(t *testing.T) {
	for _, doc := range []string{
		strings.Repeat("[", 64) + strings.Repeat("]", 64),
		"[" + strings.Repeat("[],", 1000) + "1]",
		strings.Repeat(`{"a":[`, 32) + strings.Repeat("]}", 32),
	} {
		if got := formOf(t, doc); got != doc {
			t.Errorf("%.40s: got %.200s", doc, got)
		}
	}
}

func TestCanonical_FormIsAtMostSixTimesAsLong(t *testing.T) {
	for _, value := range []string{
		"1e20", "1e-6", "1E20", "-1e20", "1e21", "1e999999999999999999", `"\u0001"`, "\"\u007f\u2028\"", `"\b"`, `"/"`, "1.5e20", "{}", `{"b":1,"a":1e20}`,
	} {
		for _, n := range []int{0, 1, 10, 10000} {
			doc := value
			if n > 0 {
				doc = "[" + strings.Repeat(value+",", n-1) + value + "]"
			}
			if got := formOf(t, doc); len(got) > 6*len(doc) {
				t.Errorf("%d times %s: %d bytes became %d", n, value, len(doc), len(got))
			}
		}
	}
}

// levels returns a document of about size bytes whose members are out of order
// on each of 64 levels.
func levels(size int) string {
	return strings.Repeat(`{"b":`, 64) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`,"a":0}`, 64)
}

// worstOrders returns objects of n members in orders that are hard to sort.
func worstOrders(n int) map[string]string {
	object := func(name func(i int) string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%s":%d`, name(i), i%10)
		}
		return "{" + b.String()[1:] + "}"
	}
	const prefix = "the same beginning of every name "
	return map[string]string{
		"descending": object(func(i int) string { return fmt.Sprintf("%08d", n-i) }),
		"scattered":  object(func(i int) string { return fmt.Sprintf("%08d", i*7919%n) }),
		"organ pipe": object(func(i int) string { return fmt.Sprintf("%08d", min(2*i, 2*(n-i)-1)) }),
		"long names": object(func(i int) string { return fmt.Sprintf("%s%08d", prefix, n-i) }),
		"escapes":    object(func(i int) string { return fmt.Sprintf(`\u0001\n\"%08d`, n-i) }),
		"non-ASCII":  object(func(i int) string { return fmt.Sprintf("\ufb33😀%08d", i*7919%n) }),
		"prefixes":   object(func(i int) string { return strings.Repeat("x", (n-i)%300) + strconv.Itoa(n-i) }),
	}
}

func TestCanonical_WorkToOrderMembersIsBounded(t *testing.T) {
	check := func(name, doc string, most int) {
		c := new(Writer)
		if _, err := c.Write([]byte(doc)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.sortedBytes > most {
			t.Errorf("%s: %d bytes took %d bytes of sorting, want at most %d", name, len(doc), c.sortedBytes, most)
		}
	}
	doc := levels(100_000)
	check("64 levels out of order", doc, 65*len(doc))
	for _, n := range []int{10, 1000, 10_000} {
		for name, doc := range worstOrders(n) {
			check(fmt.Sprintf("%d members, %s", n, name), doc, 4*len(doc)*bits.Len(uint(n)))
		}
	}
}

func TestCanonical_FormTakesNoMemoryOnceItsBuffersAreLargeEnough(t *testing.T) {
	doc := orders(10 << 10)
	c := new(Writer)
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := c.Write(doc, "/version", "/orders/0/lines/1/tags", "/version"); err != nil {
			t.Fatal(err)
		}
		c.Selected(nil)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if len(c.chosen) > 100 {
		t.Errorf("fields of former documents are left: %.200s", c.chosen)
	}
}

func TestCanonical_BuffersOfALargeDocumentAreNotKept(t *testing.T) {
	for name, c := range map[string]*Writer{
		"text":    {out: make([]byte, 0, maxPooled+1)},
		"spare":   {spare: make([]byte, 0, maxPooled+1)},
		"members": {members: make([]member, 0, maxPooled/32+1)},
	} {
		c.Release()
		if got := writers.Get(); got == c {
			t.Errorf("a large buffer for %s was kept", name)
		}
	}
}

func TestCanonical_NothingOfTheCallerIsKept(t *testing.T) {
	c := new(Writer)
	if _, err := c.Write([]byte(`{"a":1,"b":2}`), "/b", "/a", "/b"); err != nil {
		t.Fatal(err)
	}
	c.Selected(nil)
	choices, parts := c.selections[:cap(c.selections)], c.parts[:cap(c.parts)]
	c.Release()
	if c.in != nil {
		t.Error("the document is kept")
	}
	for _, at := range choices {
		if at.pointer != "" {
			t.Errorf("the field %s is kept", at.pointer)
		}
	}
	for _, p := range parts {
		if p != nil {
			t.Errorf("the part %s is kept", p)
		}
	}
}
