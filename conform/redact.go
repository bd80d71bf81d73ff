package conform

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const redactedText = "[redacted]"

// The number of bytes of a header line and of a body that an exchange shows.
const (
	maxLine = 300
	maxBody = 2 << 10
)

// A redactor removes credentials from text that is shown.
type redactor struct {
	headers map[string]bool // names of headers whose values are not shown
	secrets []string        // texts that are not shown anywhere
}

func newRedactor(headers ...http.Header) *redactor {
	c := &redactor{headers: map[string]bool{}}
	for _, h := range headers {
		for name, values := range h {
			if isPublicHeader(name) {
				continue
			}
			c.headers[name] = true
			for _, v := range values {
				c.addSecret(v)
				if _, after, ok := strings.Cut(v, " "); ok {
					c.addSecret(after) // the token after its scheme
				}
			}
		}
	}
	return c
}

// addQuerySecrets adds the values of a URL's parameters whose names suggest a secret.
func (c *redactor) addQuerySecrets(address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(part, "=")
		if isSecret(name) || strings.EqualFold(name, "key") || strings.EqualFold(name, "signature") {
			c.addSecret(value)
			if plain, err := url.QueryUnescape(value); err == nil {
				c.addSecret(plain)
			}
		}
	}
}

// addSecret adds a secret, unless it is so short that other text may contain it by chance.
func (c *redactor) addSecret(secret string) {
	if secret = strings.TrimSpace(secret); len(secret) >= 6 {
		c.secrets = append(c.secrets, secret)
		slices.SortFunc(c.secrets, func(a, b string) int { return len(b) - len(a) }) // the longest first: one may contain another
	}
}

// isPublicHeader reports whether a header never has credentials in it.
func isPublicHeader(name string) bool {
	switch name {
	case "Accept", "Accept-Language", "Content-Type", "Host", "Prefer", "User-Agent":
		return true
	}
	return false
}

// isSecret reports whether a name suggests that its value is secret.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"authorization", "cookie", "token", "secret", "api-key", "api_key", "apikey", "password", "session", "csrf", "xsrf"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// redactMessage returns a request or a response without secrets, and shortened.
func (c *redactor) redactMessage(head, body []byte) []byte {
	var b bytes.Buffer
	for i, line := range bytes.Split(bytes.TrimRight(head, "\r\n"), []byte("\r\n")) {
		text := string(line)
		if name, value, ok := strings.Cut(text, ":"); ok && i > 0 {
			if c.headers[http.CanonicalHeaderKey(name)] || isSecret(name) {
				text = name + ": " + visible(name, value)
			}
		}
		b.WriteString(shorten(c.redactText(text), maxLine) + "\r\n")
	}
	b.WriteString("\r\n")
	b.WriteString(shorten(c.redactText(string(body)), maxBody))
	return b.Bytes()
}

// visible returns the part of a secret header's value that is shown.
func visible(name, value string) string {
	if cookie, _, ok := strings.Cut(value, "="); ok && strings.EqualFold(name, "Set-Cookie") {
		return strings.TrimSpace(cookie) + "=" + redactedText
	}
	return redactedText
}

// redactText returns text without the secrets.
func (c *redactor) redactText(s string) string {
	for _, secret := range c.secrets {
		s = strings.ReplaceAll(s, secret, redactedText)
	}
	return s
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes more)", s[:most], len(s)-most)
}
