package proxy

import (
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A reading is one way in which a server may understand a path.
type reading struct {
	text    string
	literal bool // text has been decoded; otherwise, a server still decodes its segments
}

const (
	mostReadings     = 64        // of one path
	mostReadingBytes = 128 << 10 // total length of the readings of one path
)

// steps are the transformations that servers apply to the path of a request. Each
// server applies some of them, in its own order.
var steps = [...]func(string) string{withoutParameters, withoutSemicolon, withoutQuery, backslashesAsSlashes, withoutBlanks, withoutDots}

// readings returns all readings of a path in normal form: as decoded by a WSGI
// server, without parameters as in Tomcat, without dots at its end as on Windows,
// and so on. It is not ok if there are too many, or if a reading begins with two
// slashes, has a control character, or has dot segments that are not resolved.
func readings(normal string) (all []reading, ok bool) {
	all = []reading{{normal, false}}
	bytes := 0
	add := func(r reading) {
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	for i := 0; i < len(all); i++ {
		r := all[i]
		_, dots := resolve(r.text)
		if bytes += len(r.text); dots || len(all) > mostReadings || bytes > mostReadingBytes || r.literal && (strings.HasPrefix(r.text, "//") || !httpfield.IsText(r.text)) {
			return nil, false
		}
		add(reading{decoded(r.text), true})
		for _, step := range steps {
			add(reading{step(r.text), r.literal})
		}
	}
	return all, true
}

// paths returns the escaped paths to look up for a reading. There are two if it has
// empty segments, because servers differ in whether they merge slashes.
func (r *reading) paths() []string {
	text := r.text
	if r.literal {
		text = (&url.URL{Path: text}).EscapedPath()
	}
	if !strings.Contains(text, "//") {
		return []string{text}
	}
	return []string{merged(text), unmerged(text)}
}

// merged returns a path without empty segments.
func merged(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// unmerged returns a path in which empty segments match wildcards like any other
// segment.
func unmerged(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if s == "" && 0 < i && i < len(segments)-1 {
			segments[i] = "%00" // no pattern contains it
		}
	}
	return strings.Join(segments, "/")
}

// decoded returns a path decoded once. Malformed escapes are kept, as in PHP and
// Python.
func decoded(path string) string {
	if strings.IndexByte(path, '%') < 0 {
		return path
	}
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if c := path[i]; c != '%' || i+2 >= len(path) || syntax.HexDigit(path[i+1]) < 0 || syntax.HexDigit(path[i+2]) < 0 {
			b = append(b, c)
			continue
		}
		b = append(b, byte(syntax.HexDigit(path[i+1])<<4|syntax.HexDigit(path[i+2])))
		i += 2
	}
	return string(b)
}

func backslashesAsSlashes(path string) string { return strings.ReplaceAll(path, `\`, "/") }

// withoutParameters removes everything after a semicolon from each segment.
func withoutParameters(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	return eachSegment(path, func(s string) string {
		s, _, _ = strings.Cut(s, ";")
		return s
	})
}

// withoutSemicolon removes the first semicolon and everything after it. Fastify
// reads a semicolon as a question mark by default.
func withoutSemicolon(path string) string {
	path, _, _ = strings.Cut(path, ";")
	return path
}

// withoutQuery removes the first question mark or number sign and everything after
// it. In a path, either one can only come from decoding.
func withoutQuery(path string) string {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return path[:i]
	}
	return path
}

// withoutBlanks removes spaces from the end of each segment.
func withoutBlanks(path string) string {
	if !strings.Contains(path, " /") && !strings.HasSuffix(path, " ") {
		return path
	}
	return eachSegment(path, func(s string) string { return strings.TrimRight(s, " ") })
}

// withoutDots removes dots and spaces from the end of each segment.
func withoutDots(path string) string {
	if !strings.Contains(path, "./") && !strings.HasSuffix(path, ".") {
		return path
	}
	return eachSegment(path, func(s string) string {
		if s == "." || s == ".." {
			return s
		}
		return strings.TrimRight(s, ". ")
	})
}

// scripts returns the paths that servers of PHP scripts (RFC 3875, section 4.1.5) read in a
// path that goes on after the name of a script: /index.php/payments runs /index.php, which
// usually reads the rest as the path. If there are several names, some servers split the
// path after the first one, and others after the last one.
func scripts(path string) (read []string) {
	lower := strings.ToLower(path)
	for _, i := range []int{strings.Index(lower, ".php/"), strings.LastIndex(lower, ".php/")} {
		if i >= 0 {
			i += len(".php")
			read = append(read, path[:i], path[i:])
		}
	}
	return read
}

// eachSegment returns the path with change applied to each segment.
func eachSegment(path string, change func(string) string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = change(s)
	}
	return strings.Join(segments, "/")
}

// folded returns an escaped path in lower case, for servers that ignore case.
func folded(escaped string) string {
	for i := range len(escaped) {
		if c := escaped[i]; 'A' <= c && c <= 'Z' || c == '%' {
			text := (&url.URL{Path: strings.Map(foldedRune, decoded(escaped))}).EscapedPath()
			if strings.Count(text, "/") == strings.Count(escaped, "/") {
				return text
			}
			return strings.ToLower(escaped) // an encoded slash stays one
		}
	}
	return escaped
}

// foldedRune returns r in lower case. It goes through the upper case, because some
// runes, such as U+017F (ſ), have a different lower case only then.
func foldedRune(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }
