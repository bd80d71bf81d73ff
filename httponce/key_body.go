package httponce

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/httponce/internal/keysyntax"
)

// keyInBody finds the key in the body, if there is one, and puts it where the
// handler looks for it.
func (l *middleware) keyInBody(c *call) *Problem {
	if len(c.scratch.body) > 0 && isEncoded(c.r.Header) {
		c.w.Header().Set("Accept-Encoding", "identity") // RFC 9110, section 15.5.16
		p := bodyEncoded
		return &p
	}
	key, err := l.cfg.KeyInBody(c.scratch.body)
	given := c.request.ID.Key
	wrong := ""
	switch {
	case err != nil:
		wrong = sentence(err)
	case key == "" && given == "" && l.cfg.Required:
		p := keyMissing
		return &p
	case key == "" || key == given:
		return nil
	case given != "":
		wrong = "The key in the header is not that in the body."
	default:
		wrong = l.keys.Judge(key)
	}
	if wrong != "" {
		p := invalidKey(wrong)
		p.Err = err
		return &p
	}
	c.request.ID.Key = key
	r := *c.r
	r.Header = r.Header.Clone()
	r.Header[l.cfg.Header] = []string{keysyntax.Quote(key)}
	c.r = &r
	return nil
}

// sentence writes an error's text as a sentence.
func sentence(err error) string {
	text := err.Error()
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}

// isEncoded reports whether a body has a content coding: RFC 9110, section 8.4.
func isEncoded(h http.Header) bool {
	for _, list := range h["Content-Encoding"] {
		for coding := range strings.SplitSeq(list, ",") {
			if coding = strings.Trim(coding, " \t"); coding != "" && !strings.EqualFold(coding, "identity") {
				return true
			}
		}
	}
	return false
}
