package proxy

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// escapedPath returns the request's path as it came, unless a handler round the
// Proxy has changed it.
func escapedPath(r *http.Request) string {
	came, _, _ := strings.Cut(r.RequestURI, "?")
	if came == r.URL.Path && strings.IndexByte(came, '%') < 0 {
		return came
	}
	if plain, err := url.PathUnescape(came); err == nil && plain == r.URL.Path {
		return came
	}
	return r.URL.EscapedPath()
}

// longestDecoding is how many times a path may be encoded over.
const longestDecoding = 4

// clean returns an escaped path without empty and dot segments.
func clean(escaped string) string {
	if !strings.Contains(escaped, "//") && !strings.Contains(escaped, "/.") {
		return escaped
	}
	cleaned := path.Clean("/" + escaped)
	if cleaned != "/" && (strings.HasSuffix(escaped, "/") || strings.HasSuffix(escaped, "/.") || strings.HasSuffix(escaped, "/..")) {
		cleaned += "/"
	}
	return cleaned
}

// plainest returns what the most forgiving server may take a path for: all is
// decoded, a backslash is a slash, and the parameters of a segment are not part
// of it. It is not ok if the path has a zero byte, or no end of encodings.
func plainest(escaped string) (plain string, ok bool) {
	plain = escaped
	for range longestDecoding {
		decoded, err := url.PathUnescape(plain)
		if err != nil || decoded == plain {
			break
		}
		plain = decoded
	}
	if strings.IndexByte(plain, 0) >= 0 {
		return "", false
	}
	if again, err := url.PathUnescape(plain); err == nil && again != plain {
		return "", false
	}
	plain = strings.ReplaceAll(plain, `\`, "/")
	if strings.IndexByte(plain, ';') >= 0 {
		segments := strings.Split(plain, "/")
		for i, s := range segments {
			segments[i], _, _ = strings.Cut(s, ";")
		}
		plain = strings.Join(segments, "/")
	}
	return clean("/" + strings.TrimLeft(plain, "/")), true
}

// isPlain reports whether there is one way to read an escaped path.
func isPlain(escaped string) bool {
	return escaped != "" && escaped[0] == '/' && !strings.ContainsAny(escaped, `%;\`)
}
