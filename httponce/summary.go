package httponce

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/canonical"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/secretname"
	"github.com/onlyonce-go/onlyonce/internal/visible"
)

// A summarizer makes the summary of a request that its record keeps for operators.
type summarizer struct {
	pointers []string // into the body
	headers  []string
}

// longestValue is how much of a value a summary shows, and of a path.
const longestValue = 200

// newSummarizer returns the summarizer of a Config, or nil if there are no summaries.
func newSummarizer(chosen []string) (*summarizer, error) {
	if chosen == nil {
		return nil, nil
	}
	s := &summarizer{}
	for _, of := range chosen {
		switch {
		case of == "":
			return nil, errors.New("Config.Summary has an empty entry: write a JSON Pointer such as /amount, or the name of a header such as X-Order-ID")
		case of[0] == '/':
			s.pointers = append(s.pointers, of)
		case !httpfield.IsToken(of):
			return nil, fmt.Errorf("Config.Summary has %q, which is neither a JSON Pointer such as /amount nor the name of a header such as X-Order-ID", of)
		default:
			s.headers = append(s.headers, http.CanonicalHeaderKey(of))
		}
	}
	slices.Sort(s.headers)
	s.headers = slices.Compact(s.headers)
	w := canonical.NewWriter()
	defer w.Release()
	if _, err := w.Write([]byte("{}"), s.pointers...); err != nil {
		return nil, fmt.Errorf("Config.Summary: %w", err)
	}
	return s, nil
}

// of returns the summary of a request, whose body has been read.
func (s *summarizer) of(r *http.Request, body []byte) string {
	b := make([]byte, 0, 256)
	b = append(append(append(b, r.Method...), ' '), shorten(r.URL.EscapedPath())...)
	for _, name := range s.headers {
		for _, value := range r.Header[name] {
			b = add(b, name, strconv.Quote(shorten(value)))
		}
	}
	if len(s.pointers) > 0 {
		b = s.addSelected(b, body)
	}
	return cut(string(b))
}

// addSelected adds the values in the body.
func (s *summarizer) addSelected(b, body []byte) []byte {
	w := canonical.NewWriter()
	defer w.Release()
	if _, err := w.Write(body, s.pointers...); err != nil {
		return append(b, " (the body can't be read as JSON)"...)
	}
	parts := w.Selected(nil)[1:]
	for ; len(parts) > 1; parts = parts[2:] {
		pointer, value := string(parts[0]), parts[1]
		if len(value) == 0 {
			continue // there is none
		}
		text := shorten(string(value))
		switch value[0] {
		case '{':
			text = "{…}"
		case '[':
			text = "[…]"
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			text = shortenNumber(string(value))
		}
		b = add(b, pointer, text)
	}
	return b
}

func add(b []byte, name, value string) []byte {
	if isSecret(name) {
		value = secretname.Redacted
	}
	return append(append(append(append(b, ' '), name...), '='), value...)
}

// isSecret reports whether the value of a header or under a JSON Pointer is left out. The
// names of a pointer count alone and joined: /card/number is a card number.
func isSecret(name string) bool {
	if secretname.OfSecret(name) {
		return true
	}
	for token := range strings.SplitSeq(name, "/") {
		if token != "" && (secretname.OfCredential(token) || secretname.OfSecret(token)) {
			return true
		}
	}
	return false
}

// shorten truncates a value that is too long.
func shorten(text string) string { return visible.Cut(text, longestValue) }

// shortenNumber truncates the digits of a number that is too long, and keeps its exponent, without
// which it would look like another number.
func shortenNumber(text string) string {
	digits, exponent, has := strings.Cut(text, "e")
	if !has {
		return shorten(text)
	}
	exponent = "e" + exponent // of at most 18 digits
	return visible.Cut(digits, longestValue-len(exponent)) + exponent
}

// cut makes a summary as short as it must be.
func cut(summary string) string {
	if len(summary) <= onlyonce.LongestSummary {
		return summary
	}
	return visible.Cut(summary, onlyonce.LongestSummary-len("…"))
}
