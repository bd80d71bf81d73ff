package conform

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// A Target is an operation of an API and describes how to call it. Only URL is
// required. A missing field is either not needed or makes rows "not supported".
type Target struct {
	URL    string      // of the operation: http://127.0.0.1:8080/orders
	Method string      // default DefaultMethod
	Header http.Header // sent with every request, including credentials; a report shows none of the values
	Body   []byte      // a body that the API accepts; each "{{fresh}}" in it is replaced by eight new hexadecimal digits

	// Fresh is a JSON Pointer to a string or an integer in Body that gets a new
	// value for every command. Without it, and without a "{{fresh}}", all
	// bodies are the same, and a different body can't be tested.
	Fresh string

	KeyHeader string      // default DefaultKeyHeader
	Other     http.Header // the headers of a second tenant; they replace those of the same name in Header
	OtherURL  string      // another operation that accepts Body
	BadBody   []byte      // a body that the API rejects; default: Body without its last byte, if Body is JSON

	// CountURL responds to a GET with a JSON document that says how often
	// commands have taken effect. Count is a JSON Pointer to that number, or to
	// an array of that length. CountURL may be relative to URL. A "{{fresh}}"
	// in it is replaced by the fresh value in the command's body, so that only
	// that command is counted. Without CountURL, a second run is detected only
	// if its response differs.
	CountURL string
	Count    string

	TLS *tls.Config // for https; nil: the system's roots
}

// These are the defaults of a Target.
const (
	DefaultMethod    = http.MethodPost
	DefaultKeyHeader = "Idempotency-Key"
)

// withDefaults returns the target with defaults filled in, or an error if it is invalid.
func (t Target) withDefaults() (Target, error) {
	t.Method = cmp.Or(t.Method, DefaultMethod)
	t.KeyHeader = cmp.Or(t.KeyHeader, DefaultKeyHeader)
	for _, name := range []string{t.Method, t.KeyHeader} {
		if !isToken(name) {
			return t, fmt.Errorf("%q is not the name of a method or a header", name)
		}
	}
	if err := errors.Join(checkHeader(t.Header), checkHeader(t.Other)); err != nil {
		return t, err
	}
	if t.Header.Get(t.KeyHeader) != "" {
		return t, fmt.Errorf("the header %s is given: leave it out, because every request gets a key of its own", t.KeyHeader)
	}
	base, err := parseURL(t.URL)
	if err != nil {
		return t, err
	}
	for _, at := range []*string{&t.OtherURL, &t.CountURL} {
		if *at == "" {
			continue
		}
		u, err := base.Parse(strings.ReplaceAll(*at, placeholder, placeholderInURL))
		if err != nil {
			return t, fmt.Errorf("%q: %w", *at, err)
		}
		if *at = u.String(); u.Scheme != base.Scheme || u.Host != base.Host {
			return t, fmt.Errorf("%s is not on the same server as %s: credentials are sent to only one server", *at, t.URL)
		}
	}
	if t.Count != "" && t.CountURL == "" {
		return t, errors.New("Count is given without CountURL: give both, or neither")
	}
	if t.Header == nil {
		t.Header = http.Header{}
	}
	t.Header = canonical(t.Header)
	t.Other = canonical(t.Other)
	if t.Header.Get("Content-Type") == "" && isJSON(t.Body) {
		t.Header.Set("Content-Type", "application/json")
	}
	if t.BadBody == nil && isJSON(t.Body) {
		whole := bytes.TrimSpace(t.Body)
		if cut := whole[:len(whole)-1]; len(cut) > 0 && !isJSON(cut) {
			t.BadBody = cut
		}
	}
	return t, nil
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the URL can't be read: write one such as http://127.0.0.1:8080/orders")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("%q is not an http or https URL: write one such as http://127.0.0.1:8080/orders", text)
	case u.User != nil:
		return nil, errors.New("the URL contains credentials: pass them in a header instead")
	}
	return u, nil
}

// checkHeader rejects a header that would not be sent as given.
func checkHeader(h http.Header) error {
	for name, values := range h {
		if !isToken(name) {
			return fmt.Errorf("%q is not a header name", name)
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return fmt.Errorf("the header %s contains a line break or a NUL", name)
			}
		}
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length", "Transfer-Encoding", "Connection":
			return fmt.Errorf("the header %s is given: leave it out, because it is set for every request", name)
		}
	}
	return nil
}

func canonical(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	c := http.Header{}
	for name, values := range h {
		for _, v := range values {
			c.Add(name, v)
		}
	}
	return c
}

// header returns the headers of the first tenant, or of the other one.
func (t Target) header(other bool) http.Header {
	h := t.Header.Clone()
	if other {
		maps.Copy(h, t.Other)
	}
	return h
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c|0x20 < 'a' || c|0x20 > 'z' {
			if (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
				return false
			}
		}
	}
	return s != ""
}
