package httponce

import (
	"unicode"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/httponce/internal/keysyntax"
	"github.com/onlyonce-go/onlyonce/internal/contentcoding"
)

// A KeyFormat defines which idempotency keys are accepted. The zero KeyFormat
// accepts 1 to DefaultMaxKeyLength characters from a-z A-Z 0-9 - _, quoted or
// bare.
type KeyFormat struct {
	Syntax    KeySyntax // of the header; default StringOrToken
	MaxLength int       // in bytes; default DefaultMaxKeyLength, at most 1024
	Chars     string    // the allowed characters, printable ASCII; default a-z A-Z 0-9 - _
}

// A KeySyntax defines how a key is written in the header.
type KeySyntax int

const (
	StringOrToken KeySyntax = iota // an RFC 9651 string ("k") or a bare token (k), either with parameters
	StringOnly                     // an RFC 9651 string, as the expired Internet-Draft on the header requires
	TokenOnly                      // the bare key and nothing else
)

// reader returns a reader of the format, whose defaults are set.
func (f KeyFormat) reader() keysyntax.Reader {
	return keysyntax.NewReader(keysyntax.Format{
		Strings: f.Syntax != TokenOnly, Tokens: f.Syntax != StringOnly,
		Longest: f.MaxLength, Chars: f.Chars,
	})
}

// keyInBody finds the key in the body, if there is one, and puts it into the
// header, where the handler finds it.
func (c *call) keyInBody() *Problem {
	if len(c.body) > 0 && contentcoding.Has(c.r.Header["Content-Encoding"]) {
		c.w.Header().Set("Accept-Encoding", "identity") // RFC 9110, section 15.5.16
		p := bodyEncoded
		return &p
	}
	key, err := c.cfg.KeyInBody(c.body)
	inHeader := c.request.ID.Key
	wrong := ""
	switch {
	case err != nil:
		wrong = sentence(err)
	case key == "" && inHeader == "" && c.cfg.Required:
		p := keyMissing
		return &p
	case key == "" || key == inHeader:
		return nil
	case inHeader != "":
		wrong = "The key in the header is not that in the body."
	default:
		wrong = c.keys.Judge(key)
	}
	if wrong != "" {
		p := invalidKey(wrong)
		p.Err = err
		return &p
	}
	c.request.ID.Key = key
	r := *c.r
	r.Header = r.Header.Clone()
	r.Header[c.cfg.Header] = []string{keysyntax.Quote(key)}
	c.r = &r
	return nil
}

// sentence writes an error's text as a sentence.
func sentence(err error) string {
	text := err.Error()
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}
