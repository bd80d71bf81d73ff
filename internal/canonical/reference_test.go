package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A tree is a JSON value as the reference implementation reads it: a string,
// an exact decimal, a literal's text, a []tree or a []treeField.
type tree any

type (
	literal   string
	treeField struct {
		name  string
		value tree
	}
	decimal struct { // 0.digits × 10^point; no digits: zero
		negative bool
		digits   string
		point    *big.Int
	}
)

// parseTree reads a document that is canonical JSON's to accept: valid by
// encoding/json and by our additional rejections. It is slow and plain.
func parseTree(doc []byte) (tree, bool) {
	if !json.Valid(doc) || !utf8.Valid(doc) || hasLoneSurrogate(string(doc)) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	return parseValue(d, 0)
}

func parseValue(d *json.Decoder, depth int) (tree, bool) {
	token, err := d.Token()
	if err != nil {
		return nil, false
	}
	switch t := token.(type) {
	case json.Number:
		return parseDecimal(string(t))
	case bool:
		return literal(strconv.FormatBool(t)), true
	case nil:
		return literal("null"), true
	case string:
		return t, true
	case json.Delim:
		if depth == 64 {
			return nil, false
		}
		if t == '[' {
			return parseArray(d, depth+1)
		}
		return parseObject(d, depth+1)
	}
	panic("no such token")
}

func parseArray(d *json.Decoder, depth int) (tree, bool) {
	elements := []tree{}
	for d.More() {
		v, ok := parseValue(d, depth)
		if !ok {
			return nil, false
		}
		elements = append(elements, v)
	}
	_, err := d.Token()
	return elements, err == nil
}

func parseObject(d *json.Decoder, depth int) (tree, bool) {
	fields, seen := []treeField{}, map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil || seen[name.(string)] {
			return nil, false
		}
		seen[name.(string)] = true
		v, ok := parseValue(d, depth)
		if !ok {
			return nil, false
		}
		fields = append(fields, treeField{name.(string), v})
	}
	_, err := d.Token()
	return fields, err == nil
}

var anyEscape = regexp.MustCompile(`\\(?:u[0-9a-fA-F]{4}|[^u])`)

// hasLoneSurrogate looks at the escapes of a valid document, where a backslash
// is in a string.
func hasLoneSurrogate(doc string) bool {
	high := -1 // where a high surrogate that waits for its low one ends
	for _, at := range anyEscape.FindAllStringIndex(doc, -1) {
		unit := 0
		if doc[at[0]+1] == 'u' {
			n, _ := strconv.ParseUint(doc[at[0]+2:at[1]], 16, 16)
			unit = int(n)
		}
		low := 0xdc00 <= unit && unit <= 0xdfff
		if low != (high == at[0]) {
			return true
		}
		if high >= 0 && !low {
			return true
		}
		high = -1
		if 0xd800 <= unit && unit <= 0xdbff {
			high = at[1]
		}
	}
	return high >= 0
}

func parseDecimal(s string) (tree, bool) {
	d := decimal{point: new(big.Int)}
	s, d.negative = strings.CutPrefix(s, "-")
	mantissa, exp, ok := strings.Cut(strings.ToLower(s), "e")
	if ok {
		d.point.SetString(strings.TrimPrefix(exp, "+"), 10)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	d.point.Add(d.point, big.NewInt(int64(len(whole))))
	d.digits = strings.TrimLeft(whole+fraction, "0")
	d.point.Sub(d.point, big.NewInt(int64(len(whole+fraction)-len(d.digits))))
	d.digits = strings.TrimRight(d.digits, "0")
	if d.digits == "" {
		return decimal{point: new(big.Int)}, true
	}
	exponent := new(big.Int).Sub(d.point, big.NewInt(1))
	return d, exponent.CmpAbs(big.NewInt(1e18)) < 0
}

// String returns the number in ECMAScript's layout.
func (d decimal) String() string {
	if d.digits == "" {
		return "0"
	}
	s, sign := d.digits, ""
	if d.negative {
		sign = "-"
	}
	if n := int(d.point.Int64()); d.point.IsInt64() && -6 < n && n <= 21 {
		switch {
		case n <= 0:
			return sign + "0." + strings.Repeat("0", -n) + s
		case n >= len(s):
			return sign + s + strings.Repeat("0", n-len(s))
		}
		return sign + s[:n] + "." + s[n:]
	}
	if len(s) > 1 {
		s = s[:1] + "." + s[1:]
	}
	return sign + s + "e" + fmt.Sprintf("%+d", new(big.Int).Sub(d.point, big.NewInt(1)))
}

// reference returns the canonical text of a tree.
func reference(v tree) string {
	switch v := v.(type) {
	case string:
		return referenceString(v)
	case decimal:
		return v.String()
	case literal:
		return string(v)
	case []tree:
		var texts []string
		for _, e := range v {
			texts = append(texts, reference(e))
		}
		return "[" + strings.Join(texts, ",") + "]"
	case []treeField:
		v = slices.SortedFunc(slices.Values(v), func(a, b treeField) int {
			return slices.Compare(utf16.Encode([]rune(a.name)), utf16.Encode([]rune(b.name)))
		})
		var texts []string
		for _, f := range v {
			texts = append(texts, referenceString(f.name)+":"+reference(f.value))
		}
		return "{" + strings.Join(texts, ",") + "}"
	}
	panic("no such tree")
}

func referenceString(s string) string {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	var b strings.Builder
	for _, r := range s {
		switch text, ok := short[r]; {
		case ok:
			b.WriteString(text)
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

// A respeller writes a tree in one of the many ways that mean the same.
type respeller struct {
	*rand.Rand
	bytes.Buffer
}

func respell(v tree, seed uint64) []byte {
	r := &respeller{Rand: rand.New(rand.NewPCG(seed, 1))}
	r.value(v)
	return r.Bytes()
}

func (r *respeller) value(v tree) {
	r.blank()
	defer r.blank()
	switch v := v.(type) {
	case string:
		r.text(v)
	case decimal:
		r.number(v)
	case literal:
		r.WriteString(string(v))
	case []tree:
		r.WriteByte('[')
		r.blank()
		for i, e := range v {
			if i > 0 {
				r.WriteByte(',')
			}
			r.value(e)
		}
		r.WriteByte(']')
	case []treeField:
		r.WriteByte('{')
		r.blank()
		for i, k := range r.Perm(len(v)) {
			if i > 0 {
				r.WriteByte(',')
			}
			r.blank()
			r.text(v[k].name)
			r.blank()
			r.WriteByte(':')
			r.value(v[k].value)
		}
		r.WriteByte('}')
	}
}

func (r *respeller) blank() {
	for r.IntN(3) == 0 {
		r.WriteByte(" \t\r\n"[r.IntN(4)])
	}
}

func (r *respeller) text(s string) {
	r.WriteByte('"')
	for _, c := range s {
		short := strings.IndexRune("\"\\\b\f\n\r\t/", c)
		switch {
		case short >= 0 && r.IntN(2) == 0:
			r.WriteString(`\` + `"\bfnrt/`[short:short+1])
		case r.IntN(3) == 0 || c < ' ' || c == '"' || c == '\\':
			for _, unit := range utf16.Encode([]rune{c}) {
				fmt.Fprintf(r, []string{`\u%04x`, `\u%04X`}[r.IntN(2)], unit)
			}
		default:
			r.WriteRune(c)
		}
	}
	r.WriteByte('"')
}

func (r *respeller) number(d decimal) {
	if d.negative || d.digits == "" && r.IntN(2) == 0 {
		r.WriteByte('-')
	}
	digits := d.digits + strings.Repeat("0", 1+r.IntN(3))
	cut := 1 + r.IntN(len(digits))
	point := new(big.Int).Sub(d.point, big.NewInt(int64(cut)))
	if digits[0] == '0' {
		cut = 1
	}
	r.WriteString(digits[:cut])
	if cut < len(digits) || r.IntN(2) == 0 {
		r.WriteString("." + digits[cut:] + "0")
	}
	if point.Sign() != 0 || r.IntN(2) == 0 {
		fmt.Fprintf(r, []string{"e%d", "E%d", "e%+d", "E%+03d"}[r.IntN(4)], point)
	}
}
