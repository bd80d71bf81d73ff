package canonical

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// text writes the string whose opening quote is at i. It returns where the
// string ends and whether it is ASCII without escapes.
func (w *Writer) text(i int) (end int, plain bool, err error) {
	in, out, n, start := w.in, w.out[:cap(w.out)], len(w.out), i
	out[n] = '"'
	i, n, plain = i+1, n+1, true
	var high uint64
	for {
		switch {
		case i+8 <= len(in):
			w := binary.LittleEndian.Uint64(in[i:])
			binary.LittleEndian.PutUint64(out[n:], w)
			s := specialByte(w)
			if s == 0 {
				high |= w
				i, n = i+8, n+8
				continue
			}
			high |= w & (s&-s - 1)
			k := bits.TrailingZeros64(s) >> 3
			i, n = i+k, n+k
		case i == len(in):
			return i, false, fault("no end of a string", i)
		case in[i] != '"' && in[i] != '\\' && in[i] >= ' ':
			high |= uint64(in[i])
			out[n] = in[i]
			i, n = i+1, n+1
			continue
		}
		switch in[i] {
		case '"':
			if high&highBits != 0 {
				plain = false
				if !utf8.Valid(in[start:i]) {
					return i, false, fault("invalid UTF-8", start+invalidUTF8(in[start:i]))
				}
			}
			out[n] = '"'
			w.out = out[:n+1]
			return i + 1, plain, nil
		case '\\':
			plain = false
			w.out = out[:n]
			if i, err = w.escape(i); err != nil {
				return i, false, err
			}
			n = len(w.out)
		default:
			return i, false, fault("a control character in a string", i)
		}
	}
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// specialByte has a bit set in the lowest byte of w that is a quote, a backslash or
// a control character, and none in the bytes below it.
func specialByte(w uint64) uint64 {
	quote, slash := w^(lowBits*'"'), w^(lowBits*'\\')
	return ((quote-lowBits)&^quote | (slash-lowBits)&^slash | (w-lowBits*' ')&^w) & highBits
}

// invalidUTF8 returns where s stops being UTF-8.
func invalidUTF8(s []byte) int {
	i := 0
	for i < len(s) {
		r, n := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}

// escape writes the character of the escape sequence at i and returns where it ends.
func (w *Writer) escape(i int) (int, error) {
	switch b := w.peek(i + 1); b {
	case '/':
		w.writeByte('/')
		return i + 2, nil
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		w.out = append(w.out, '\\', b)
		return i + 2, nil
	case 'u':
		r, end := w.codeUnit(i)
		if utf16.IsSurrogate(r) {
			low, next := w.codeUnit(end)
			r, end = utf16.DecodeRune(r, low), next
			if r == utf8.RuneError {
				return i, fault("a lone surrogate", i)
			}
		}
		if r >= 0 {
			w.out = appendQuoted(w.out, r)
			return end, nil
		}
	}
	return i, fault("an unknown escape", i)
}

// codeUnit returns the UTF-16 code unit that is written as \uXXXX at i, or -1, and
// where it ends.
func (w *Writer) codeUnit(i int) (rune, int) {
	if i+6 > len(w.in) || w.in[i] != '\\' || w.in[i+1] != 'u' {
		return -1, i
	}
	return unhex(w.in[i+2 : i+6]), i + 6
}

func unhex(s []byte) rune {
	var r rune
	for _, b := range s {
		switch {
		case '0' <= b && b <= '9':
			b -= '0'
		case 'a' <= b|0x20 && b|0x20 <= 'f':
			b = b | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(b)
	}
	return r
}

const controls = "btnvfr" // the letters of the escapes for U+0008 to U+000D; \v is not valid in JSON

// appendQuoted appends r in the form that it has in a canonical string.
func appendQuoted(out []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(out, '\\', byte(r))
	case '\b' <= r && r <= '\r' && r != '\v':
		return append(out, '\\', controls[r-'\b'])
	case r < ' ':
		return append(out, '\\', 'u', '0', '0', '0'+byte(r>>4), "0123456789abcdef"[r&15])
	}
	return utf8.AppendRune(out, r)
}
