package keysyntax

import "strings"

// describe formats a set of characters for messages, such as "a-z 0-9 -".
func describe(chars *[256]bool) string {
	var words []string
	for from := 0; from < len(chars); from++ {
		if !chars[from] {
			continue
		}
		to := from
		for to+1 < len(chars) && chars[to+1] && kind(byte(to+1)) == kind(byte(from)) && kind(byte(from)) != 0 {
			to++
		}
		switch {
		case from == ' ':
			words = append(words, "the space")
		case to > from+1:
			words = append(words, string([]byte{byte(from), '-', byte(to)}))
		default:
			to = from
			words = append(words, string([]byte{byte(from)}))
		}
		from = to
	}
	return strings.Join(words, " ")
}

// kind distinguishes lower-case letters, upper-case letters and digits; 0: none
// of them.
func kind(c byte) byte {
	switch {
	case isDigit(c):
		return '0'
	case isLower(c):
		return 'a'
	case 'A' <= c && c <= 'Z':
		return 'A'
	}
	return 0
}
