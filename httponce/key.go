package httponce

import "github.com/onlyonce-go/onlyonce/httponce/internal/keysyntax"

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
