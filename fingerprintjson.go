package onlyonce

import "github.com/onlyonce-go/onlyonce/internal/canonical"

// What a fingerprint of canonical JSON starts with, so that it is none of other
// bytes. The form of either is part of what stores keep: a change of it needs a
// new tag.
var (
	wholeJSON  = []byte("onlyonce.json.v1")
	chosenJSON = []byte("onlyonce.json-fields.v1")
)

// FingerprintJSON returns the SHA-256 of the canonical form of a JSON document.
// White space, the order of members and how a character or a number is written
// do not matter; everything else does, upper and lower case and Unicode's
// several forms of one character included.
//
// The form is that of RFC 8785, but numbers are exact where RFC 8785 rounds
// them to a double: 1, 1.0 and 10e-1 are the same, as are 0 and -0;
// 9007199254740993 and 9007199254740992 are not, and 1e400 is a number.
//
// Fields are JSON Pointers (RFC 6901), such as /amount or /lines/0/sku, to what
// counts; without any, the whole document does. Their order and repeats do not
// matter. A field that is missing differs from one that is null. A malformed
// pointer is an error whatever the document is.
//
// A document that is not JSON, or that readers may understand differently, is
// an error that says at which byte: a name twice in one object, invalid UTF-8,
// a lone surrogate, a byte order mark, more than 64 levels, a number from
// 10^(10^18) on or as small, more than 512 MiB. Take Fingerprint of its bytes
// as they are then: it does not equal that of any document.
func FingerprintJSON(doc []byte, fields ...string) ([]byte, error) {
	w := canonical.NewWriter()
	defer w.Release()
	text, err := w.Write(doc, fields...)
	if err != nil {
		return nil, err
	}
	if len(fields) > 0 {
		return Fingerprint(w.Selected(chosenJSON)...), nil
	}
	return Fingerprint(wholeJSON, text), nil
}
