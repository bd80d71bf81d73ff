package proxy

import (
	"net/http"
	"strings"
)

// names are the headers that matter: no Connection header may name them, and no
// other spelling of them is sent on.
type names map[string]bool

func newNames(routes []Route, cfg Config) names {
	n := names{}
	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "Cookie", "Host", "Content-Length", "Content-Type", "Content-Encoding",
		"Transfer-Encoding", "Expect", "Prefer", "Forwarded", "Via", "X-Real-Ip", "True-Client-Ip", "Idempotency-Key",
	} {
		n[name] = true
	}
	for _, name := range cfg.Protected {
		n[http.CanonicalHeaderKey(name)] = true
	}
	for _, r := range routes {
		if r.Once.Header != "" {
			n[http.CanonicalHeaderKey(r.Once.Header)] = true
		}
		for name := range r.SetHeader {
			n[http.CanonicalHeaderKey(name)] = true
		}
	}
	return n
}

// has reports whether the header of that canonical name matters.
func (n names) has(name string) bool {
	return n[name] || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Idempotency-")
}

// hidden returns a protected header that a Connection header names, or "".
func (n names) hidden(h http.Header) string {
	for _, list := range h["Connection"] {
		if list == "keep-alive" || list == "close" || list == "Upgrade" {
			continue
		}
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); n.has(name) {
				return name
			}
		}
	}
	return ""
}

const (
	headerAttempt = "Idempotency-Attempt"
	headerFence   = "Idempotency-Fence"
)

// dropped reports whether a client's header is never sent on: those that are ours
// to say, and those by which some servers take another path for the request's.
func dropped(name string) bool {
	switch name {
	case headerAttempt, headerFence, "Idempotency-Replayed", "Idempotency-Replay", "Idempotency-Expires", "Idempotency-Protected",
		"X-Original-Url", "X-Rewrite-Url":
		return true
	}
	return false
}

// believed are the headers that only a trusted proxy may say.
func believed(name string) bool {
	return name == "Forwarded" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-")
}

// strip takes from a client's header what is never sent on, other spellings of
// the names that matter included, and what only a trusted proxy may say.
func (n names) strip(h http.Header, trust bool) {
	for name := range h {
		if strings.IndexByte(name, '_') >= 0 && n.has(http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))) ||
			dropped(name) || !trust && believed(name) {
			delete(h, name)
		}
	}
}
