// Package plain makes output safe to show: JSON in a terminal, which acts on some
// characters, and text to people who must not see a password.
package plain

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/internal/visible"
)

// JSON escapes the characters that visible.Text escapes in a JSON document as \uNNNN, which does not
// change its meaning. Line feeds and tabs, which indent a document, stay.
func JSON(doc []byte) []byte {
	clean := true
	for _, c := range doc {
		if c >= 0x7f {
			clean = false
			break
		}
	}
	if clean {
		return doc // encoding/json has escaped the characters below the space
	}
	out := make([]byte, 0, len(doc)+64)
	for len(doc) > 0 {
		r, n := utf8.DecodeRune(doc)
		switch {
		case r < 0x7f || r == utf8.RuneError && n == 1 || !visible.Hidden(r):
			out = append(out, doc[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[n:]
	}
	return out
}

// JSONTo returns a writer of JSON documents to w. Each Write must be one document.
func JSONTo(w io.Writer) io.Writer { return jsonWriter{w} }

// NewJSONEncoder returns an encoder of JSON documents to w, which leaves <, > and & as they are.
func NewJSONEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(JSONTo(w))
	e.SetEscapeHTML(false)
	return e
}

type jsonWriter struct{ to io.Writer }

func (w jsonWriter) Write(p []byte) (int, error) {
	if _, err := w.to.Write(JSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// masked replaces a password.
const masked = "xxxxx"

// In URLs of databases and brokers, everything that could belong to the password is
// replaced: an unescaped password may contain spaces, slashes and more than one @.
var (
	storePassword = regexp.MustCompile(`(?i)((?:postgres|postgresql|mysql|mariadb|sqlserver|redis|rediss|amqp|amqps|nats|tls|etcd|etcds|dynamodb)://[^\s:/@\x00]*:)[^\r\n]*@`)
	natsToken     = regexp.MustCompile(`(?i)((?:nats|tls)://)[^\s:@"']+@`)
	userPassword  = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s:/@"'\x00]*:)[^\s"']*@`)
	goPassword    = regexp.MustCompile(`([^\s:/@"']+:)[^\r\n]*(@(?:tcp|tcp4|tcp6|unix)\()`)
	maskedBefore  = regexp.MustCompile(`:` + masked + `@([^\s@]*(?:\s|$))`) // with another @, more of the password may follow
	setPassword   = regexp.MustCompile(`(?i)((?:password|passwd|passfile|pwd)\s*=\s*)(?:\\?'(?:[^'\\]|\\.)*'|\\?"(?:[^"\\]|\\.)*"|[^\s&]+)`)
)

// Mask replaces passwords in a text: those in URLs (scheme://user:password@), tokens of
// NATS (nats://token@), settings (password=…, in quotes or not) and the names of Go's MySQL driver
// (user:password@tcp(…)).
func Mask(text string) string {
	// The form that error messages suggest contains no password, and must not make
	// the text before it look like one.
	text = strings.ReplaceAll(text, "USER:PASSWORD@", "USER:PASSWORD\x00")
	// Nor must a password that is masked already, so that what follows the URL stays.
	text = maskedBefore.ReplaceAllString(text, "\x00"+masked+"\x00$1")
	lower := strings.ToLower(text)
	if strings.Contains(text, "@") {
		text = storePassword.ReplaceAllString(text, "${1}"+masked+"@")
		text = natsToken.ReplaceAllString(text, "${1}"+masked+"@")
		text = userPassword.ReplaceAllString(text, "${1}"+masked+"@")
		text = goPassword.ReplaceAllString(text, "${1}"+masked+"${2}")
	}
	if strings.Contains(lower, "pass") || strings.Contains(lower, "pwd") {
		text = setPassword.ReplaceAllString(text, "${1}"+masked)
	}
	text = strings.ReplaceAll(text, "\x00"+masked+"\x00", ":"+masked+"@")
	return strings.ReplaceAll(text, "USER:PASSWORD\x00", "USER:PASSWORD@")
}
