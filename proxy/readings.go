package proxy

import (
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A reading is what a server may take a path for.
type reading struct {
	text    string
	literal bool // text has been decoded; else a server is still to decode its segments
}

const (
	mostReadings     = 64        // of one path
	mostReadingBytes = 128 << 10 // in all
)

// steps are what servers do to a path that has been received. Each server does
// some of them, in an order of its own.
var steps = [...]func(string) string{withoutParameters, withoutSemicolon, withoutQuery, backslashesAsSlashes, withoutBlanks, withoutDots}

// readings returns all that a path in normal form may be taken for: as a WSGI
// server decodes it, as Tomcat leaves out parameters, as Windows leaves out dots
// at the end. It is not ok if these are too many, or if one begins with two
// slashes, has a control character, or climbs up by dot segments that nobody has
// resolved.
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
		if bytes += len(r.text); dots || len(all) > mostReadings || bytes > mostReadingBytes || r.literal && (strings.HasPrefix(r.text, "//") || !syntax.IsText(r.text)) {
			return nil, false
		}
		add(reading{decoded(r.text), true})
		for _, step := range steps {
			add(reading{step(r.text), r.literal})
		}
	}
	return all, true
}

// paths returns, escaped, the paths to look up for a reading: servers differ in
// whether they merge slashes.
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

// unmerged returns a path whose empty segments are like any other.
func unmerged(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if s == "" && 0 < i && i < len(segments)-1 {
			segments[i] = "%00" // which no pattern names
		}
	}
	return strings.Join(segments, "/")
}

// decoded returns a path decoded once. What is malformed stays, as in PHP and
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

// withoutParameters leaves out what follows a semicolon in each segment.
func withoutParameters(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	return eachSegment(path, func(s string) string {
		s, _, _ = strings.Cut(s, ";")
		return s
	})
}

// withoutSemicolon leaves out all that follows a semicolon, which Fastify takes for
// a question mark unless it is told otherwise.
func withoutSemicolon(path string) string {
	path, _, _ = strings.Cut(path, ";")
	return path
}

// withoutQuery leaves out what follows a question mark or a number sign, which can
// only have been encoded.
func withoutQuery(path string) string {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return path[:i]
	}
	return path
}

// withoutBlanks leaves out blanks at the end of each segment.
func withoutBlanks(path string) string {
	if !strings.Contains(path, " /") && !strings.HasSuffix(path, " ") {
		return path
	}
	return eachSegment(path, func(s string) string { return strings.TrimRight(s, " ") })
}

// withoutDots leaves out dots and blanks at the end of each segment.
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

// splitScript divides a path behind a segment that names a PHP script, as the servers
// that run one do (RFC 3875, section 4.1.5): /index.php/payments runs /index.php, which
// mostly takes the rest for the path.
func splitScript(path string) (script, info string, ok bool) {
	i := strings.Index(strings.ToLower(path), ".php/")
	if i < 0 {
		return "", "", false
	}
	i += len(".php")
	return path[:i], path[i:], true
}

func eachSegment(path string, change func(string) string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = change(s)
	}
	return strings.Join(segments, "/")
}

// folded returns an escaped path in lower case, as a server compares it that does
// not mind the case.
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

// foldedRune goes by way of the upper case: U+017F is an s, too.
func foldedRune(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }
