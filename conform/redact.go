package conform

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const redacted = "[redacted]"

// What an exchange shows of a header line and of a body.
const (
	longestLine = 300
	longestBody = 2 << 10
)

// A censor removes credentials from text that is shown.
type censor struct {
	given   map[string]bool // names of headers whose values are not shown
	secrets []string        // texts that are not shown anywhere
}

func newCensor(headers ...http.Header) *censor {
	c := &censor{given: map[string]bool{}}
	for _, h := range headers {
		for name, values := range h {
			if isPlain(name) {
				continue
			}
			c.given[name] = true
			for _, v := range values {
				c.hide(v)
				if _, after, ok := strings.Cut(v, " "); ok {
					c.hide(after) // the token after its scheme
				}
			}
		}
	}
	return c
}

// hideQuery hides the values of a URL's parameters whose names tell that they are
// secret.
func (c *censor) hideQuery(address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(part, "=")
		if isSecret(name) || strings.EqualFold(name, "key") || strings.EqualFold(name, "signature") {
			c.hide(value)
			if plain, err := url.QueryUnescape(value); err == nil {
				c.hide(plain)
			}
		}
	}
}

// hide adds a secret, unless it is so short that it is in other text by chance.
func (c *censor) hide(secret string) {
	if secret = strings.TrimSpace(secret); len(secret) >= 6 {
		c.secrets = append(c.secrets, secret)
		slices.SortFunc(c.secrets, func(a, b string) int { return len(b) - len(a) }) // one may be in another
	}
}

// isPlain reports whether a header that was given has no credentials in it.
func isPlain(name string) bool {
	switch name {
	case "Accept", "Accept-Language", "Content-Type", "Host", "Prefer", "User-Agent":
		return true
	}
	return false
}

// isSecret reports whether a name tells that its value is secret.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"authorization", "cookie", "token", "secret", "api-key", "api_key", "apikey", "password", "session", "csrf", "xsrf"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// message returns a request or a response as it may be shown.
func (c *censor) message(head, body []byte) []byte {
	var b bytes.Buffer
	for i, line := range bytes.Split(bytes.TrimRight(head, "\r\n"), []byte("\r\n")) {
		text := string(line)
		if name, value, ok := strings.Cut(text, ":"); ok && i > 0 {
			if c.given[http.CanonicalHeaderKey(name)] || isSecret(name) {
				text = name + ": " + visible(name, value)
			}
		}
		b.WriteString(shorten(c.text(text), longestLine) + "\r\n")
	}
	b.WriteString("\r\n")
	b.WriteString(shorten(c.text(string(body)), longestBody))
	return b.Bytes()
}

// visible returns the part of a secret header's value that is shown.
func visible(name, value string) string {
	if cookie, _, ok := strings.Cut(value, "="); ok && strings.EqualFold(name, "Set-Cookie") {
		return strings.TrimSpace(cookie) + "=" + redacted
	}
	return redacted
}

// text returns text without the secrets.
func (c *censor) text(s string) string {
	for _, secret := range c.secrets {
		s = strings.ReplaceAll(s, secret, redacted)
	}
	return s
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes more)", s[:most], len(s)-most)
}
