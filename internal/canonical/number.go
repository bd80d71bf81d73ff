package canonical

import (
	"slices"
	"strconv"
)

// maxExponent is the largest exponent, up or down, of a number with one digit before the point.
const maxExponent = 999999999999999999

// number writes the number at i and returns where it ends.
func (w *Writer) number(i int) (int, error) {
	start := i
	if w.peek(i) == '-' {
		i++
	}
	first := i
	i = w.digits(i)
	switch {
	case i == first:
		return i, fault("no value", start)
	case w.in[first] == '0' && i > first+1:
		return i, fault("a leading zero", first)
	}
	point := i
	if w.peek(i) == '.' {
		if i = w.digits(i + 1); i == point+1 {
			return i, fault("no digit", i)
		}
	}
	text := w.in[first:i]
	if w.peek(i)|0x20 != 'e' && canonicalDecimal(text, point-first) {
		w.out = append(w.out, w.in[start:i]...)
		return i, nil
	}
	exp, i, err := w.exponent(i)
	if err != nil {
		return i, err
	}
	if !w.decimal(start < first, text, point-first, exp) {
		return i, fault("an exponent of more than 18 digits", start)
	}
	w.out = slices.Grow(w.out, len(w.in)-i+8)
	return i, nil
}

func (w *Writer) digits(i int) int {
	for i < len(w.in) && w.in[i]-'0' <= 9 {
		i++
	}
	return i
}

// exponent returns the exponent at i, or 0 if there is none, and where it ends.
// It may return far for an exponent that is out of range for a number of any length.
func (w *Writer) exponent(i int) (int64, int, error) {
	if w.peek(i)|0x20 != 'e' {
		return 0, i, nil
	}
	const far = 4 * maxExponent
	i++
	negative := w.peek(i) == '-'
	if negative || w.peek(i) == '+' {
		i++
	}
	end := w.digits(i)
	if end == i {
		return 0, i, fault("no digit", i)
	}
	var exp int64
	for _, b := range w.in[i:end] {
		if exp > far/10 {
			exp = far
			break
		}
		exp = exp*10 + int64(b-'0')
	}
	if negative {
		exp = -exp
	}
	return exp, end, nil
}

const zeros = "000000000000000000000" // as many digits as ECMAScript writes in front of a point

// canonicalDecimal reports whether a number that is written without an
// exponent is canonical. The point is at the end if it has none.
func canonicalDecimal(text []byte, point int) bool {
	if point == len(text) {
		return point <= len(zeros) && text[0] != '0'
	}
	return point <= len(zeros) && text[len(text)-1] != '0' && (text[0] != '0' || text[point+1] != '0')
}

// decimal writes the number text × 10^exp, in ECMAScript's layout with all its
// digits. It reports whether the number's own exponent is in range.
func (w *Writer) decimal(negative bool, text []byte, point int, exp int64) bool {
	lead := 0
	for lead < len(text) && (text[lead] == '0' || lead == point) {
		lead++
	}
	if lead == len(text) {
		w.out = append(w.out, '0')
		return true
	}
	tail := len(text)
	for text[tail-1] == '0' || tail-1 == point {
		tail--
	}
	d := w.spare[:0]
	if point <= lead || point >= tail {
		d = append(d, text[lead:tail]...)
	} else {
		d = append(append(d, text[lead:point]...), text[point+1:tail]...)
	}
	w.spare = d
	n := exp + int64(point-lead) // the number is 0.d × 10^n
	if point < lead {
		n++
	}
	if n-1 > maxExponent || n-1 < -maxExponent {
		return false
	}
	if negative {
		w.writeByte('-')
	}
	w.out = appendDecimal(w.out, d, n)
	return true
}

// appendDecimal appends 0.d × 10^n, where d neither starts nor ends with 0.
func appendDecimal(out, d []byte, n int64) []byte {
	k := int64(len(d))
	switch {
	case k <= n && n <= 21:
		return append(append(out, d...), zeros[:n-k]...)
	case 0 < n && n <= 21:
		return append(append(append(out, d[:n]...), '.'), d[n:]...)
	case -6 < n && n <= 0:
		return append(append(append(out, "0."...), zeros[:-n]...), d...)
	}
	out = append(out, d[0])
	if k > 1 {
		out = append(append(out, '.'), d[1:]...)
	}
	out = append(out, 'e')
	if n > 0 {
		out = append(out, '+')
	}
	return strconv.AppendInt(out, n-1, 10)
}
