package proxy

import "strings"

// isHost reports whether s names a host, and nothing else: RFC 9110, section 7.2.
// Percent-encoded names, which some parsers decode, are none.
func isHost(s string) bool {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		address, port, ok := strings.Cut(rest, "]")
		return ok && address != "" && strings.Trim(address, "0123456789abcdefABCDEF:.") == "" && isPort(port)
	}
	name, port := s, ""
	if i := strings.IndexByte(s, ':'); i >= 0 {
		name, port = s[:i], s[i:]
	}
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && strings.IndexByte("-._~", c) < 0 {
			return false
		}
	}
	return isPort(port)
}

// isPort reports whether s is a colon and a number, or nothing.
func isPort(s string) bool {
	return s == "" || s[0] == ':' && strings.Trim(s[1:], "0123456789") == ""
}

// hostName returns the name in a Host as patterns have it: in lower case, without
// the port and the dot of the root.
func hostName(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimRight(host, "."))
}

// withHostName returns a pattern with its host as hostName writes it.
func withHostName(pattern string) string {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	} else {
		method += " "
	}
	if i := strings.IndexByte(rest, '/'); i > 0 {
		rest = hostName(rest[:i]) + rest[i:]
	}
	return method + rest
}
