package httponce

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// What the layer itself says in headers.
const (
	headerReplayed  = "Idempotency-Replayed"  // true: the stored answer
	headerReplay    = "Idempotency-Replay"    // omitted: the stored answer has no body
	headerExpires   = "Idempotency-Expires"   // when protection ends
	headerProtected = "Idempotency-Protected" // no: nothing is stored
)

// A headerCopy is a header as it was at some moment.
type headerCopy struct {
	fields []headerField
	values []string
}

type headerField struct {
	name string
	n    int // how many of the values are its own
}

func (c *headerCopy) clear() {
	clear(c.fields)
	clear(c.values)
	c.fields, c.values = c.fields[:0], c.values[:0]
}

func (c *headerCopy) snapshot(h http.Header) {
	c.clear()
	for name, vs := range h {
		c.fields = append(c.fields, headerField{name, len(vs)})
		c.values = append(c.values, vs...)
	}
}

// equal reports whether h is still what was copied.
func (c *headerCopy) equal(h http.Header) bool {
	if len(h) != len(c.fields) {
		return false
	}
	values := c.values
	for _, f := range c.fields {
		vs, ok := h[f.name]
		if !ok || !slices.Equal(vs, values[:f.n]) {
			return false
		}
		values = values[f.n:]
	}
	return true
}

// restore makes h what was copied.
func (c *headerCopy) restore(h http.Header) {
	if c.equal(h) {
		return
	}
	clear(h)
	values := c.values
	for _, f := range c.fields {
		h[f.name] = slices.Clone(values[:f.n])
		values = values[f.n:]
	}
}

// has reports whether the copy has the name with just these values.
func (c *headerCopy) has(name string, vs []string) bool {
	values := c.values
	for _, f := range c.fields {
		if f.name == name {
			return slices.Equal(vs, values[:f.n])
		}
		values = values[f.n:]
	}
	return false
}

// get returns the values of a name.
func (c *headerCopy) get(name string) []string {
	values := c.values
	for _, f := range c.fields {
		if f.name == name {
			return values[:f.n]
		}
		values = values[f.n:]
	}
	return nil
}

// stored returns those of an answer's fields that are kept with it; base is what
// others had set before.
func (c *Config) stored(h, trailers http.Header, base *headerCopy) map[string][]string {
	kept := maps.Clone(h)
	if kept == nil {
		kept = make(http.Header, len(trailers))
	}
	maps.Copy(kept, trailers)
	connection := h["Connection"]
	for name, vs := range kept {
		if base.has(name, vs) || !c.replays(name) || listed(connection, name) {
			delete(kept, name)
		}
	}
	return kept
}

// replays reports whether a header, or a trailer, of that name is stored.
func (c *Config) replays(name string) bool {
	if c.ReplayHeader == nil && (name == "Content-Type" || name == "Location") {
		return true // most often, it is one of these
	}
	name = http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix))
	if ofConnection(name) {
		return false
	}
	byDefault := !secretOrStale(name)
	if c.ReplayHeader != nil {
		return c.ReplayHeader(name, byDefault)
	}
	return byDefault
}

// ofConnection reports whether a header is about this connection, or this
// layer's own.
func ofConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Upgrade",
		headerReplayed, headerReplay, headerExpires, headerProtected:
		return true
	}
	return false
}

// secretOrStale reports whether a header was meant for one client, or for the
// first time only.
func secretOrStale(name string) bool {
	switch name {
	case "Content-Type", "Content-Length", "Location", "Etag", "Cache-Control", "Vary", "Link", "Last-Modified",
		"Idempotency-Key", "Surrogate-Key":
		return false
	case "Date", "Age", "Traceparent", "Tracestate", "Traceresponse", "Server-Timing", "Clear-Site-Data":
		return true
	}
	return strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "X-B3-") || carriesSecret(name)
}

// ofSecrets are words in the names of headers that carry credentials, whatever
// separates them. A name that merely looks like one of a secret is not stored
// either: a replay without it can be seen and mended, a stored secret can't.
var ofSecrets = [...]string{
	"token", "secret", "session", "sessid", "cookie", "credential", "passw", "passphrase", "apikey", "accesskey",
	"privatekey", "signingkey", "encryptionkey", "authoriz", "authent", "authn", "oauth", "bearer", "jwt",
	"csrf", "xsrf", "samlresponse", "onetime",
}

// ofSecretsAlone are words that tell so only if they stand alone: "Author" is no
// "Auth".
var ofSecretsAlone = [...]string{"auth", "key", "keys", "otp", "totp", "mfa", "pin", "sid", "ticket", "assertion"}

// carriesSecret reports whether the name of a header looks as if it carried a
// credential.
func carriesSecret(name string) bool {
	var room [64]byte
	joined := room[:0]
	for i := range len(name) {
		if c := lower(name[i]); c != '-' && c != '_' && c != '.' {
			joined = append(joined, c)
		}
	}
	for _, word := range ofSecrets {
		if bytes.Contains(joined, []byte(word)) {
			return true
		}
	}
	for rest := name; rest != ""; {
		var word string
		if i := strings.IndexAny(rest, "-_."); i >= 0 {
			word, rest = rest[:i], rest[i+1:]
		} else {
			word, rest = rest, ""
		}
		for _, w := range ofSecretsAlone {
			if strings.EqualFold(word, w) {
				return true
			}
		}
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// listed reports whether comma-separated lists have the name.
func listed(lists []string, name string) bool {
	for _, list := range lists {
		for n := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(n), name) {
				return true
			}
		}
	}
	return false
}

// ofBody are the headers that would be false of an empty body.
var ofBody = [...]string{"Content-Length", "Content-Encoding", "Content-Md5", "Content-Digest", "Content-Range"}

// omitBody says that the stored answer has no body.
func omitBody(h map[string][]string) map[string][]string {
	for _, name := range ofBody {
		delete(h, name)
	}
	h[headerReplay] = []string{"omitted"}
	return h
}
