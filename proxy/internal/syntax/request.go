package syntax

import "strings"

// IsMethod reports whether s is an upper-case method token. Lower-case methods
// are rejected because some servers treat "post" as POST.
func IsMethod(s string) bool {
	for i := range len(s) {
		if b := s[i]; (b < 'A' || b > 'Z') && b != '-' && b != '_' {
			return false
		}
	}
	return s != ""
}

// IsHost reports whether s names a host, and nothing else: RFC 9110, section 7.2.
// Percent-encoded names are rejected because some parsers decode them.
func IsHost(s string) bool {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		address, port, ok := strings.Cut(rest, "]")
		return ok && address != "" && strings.Trim(address, "0123456789abcdefABCDEF:.") == "" && isPort(port)
	}
	name, port := s, ""
	if i := strings.IndexByte(s, ':'); i >= 0 {
		name, port = s[:i], s[i:]
	}
	for i := range len(name) {
		if c := name[i]; !IsAlphanumeric(c) && strings.IndexByte("-._~", c) < 0 {
			return false
		}
	}
	return isPort(port)
}

// isPort reports whether s is a colon and a number, or nothing.
func isPort(s string) bool {
	return s == "" || s[0] == ':' && strings.Trim(s[1:], "0123456789") == ""
}

// IsAlphanumeric reports whether c is a letter or digit of ASCII.
func IsAlphanumeric(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}

// IsForbiddenInTrailer reports whether a field must not follow the body, because
// it says how the message is to be read or who may see it: RFC 9110, section
// 6.5.1. The name is canonical.
func IsForbiddenInTrailer(name string) bool {
	switch name {
	case "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Te", "Upgrade", "Content-Type", "Content-Encoding", "Content-Range", "Host", "Authorization", "Set-Cookie", "Cache-Control", "Www-Authenticate", "Location":
		return true
	}
	return strings.HasPrefix(name, "Idempotency-")
}
