package onlyonce

import "github.com/onlyonce-go/onlyonce/internal/canonical"

// These tags are the first part of a fingerprint of canonical JSON, so that it differs
// from every fingerprint of raw bytes. Stores keep fingerprints, so a change of the
// canonical form needs a new tag.
var (
	wholeJSON  = []byte("onlyonce.json.v1")
	chosenJSON = []byte("onlyonce.json-fields.v1")
)

// FingerprintJSON returns the SHA-256 of the canonical form of a JSON document.
// White space, the order of members, and the spelling of characters and numbers
// do not matter. Everything else does, including letter case and the different
// Unicode forms of one character.
//
// The form is that of RFC 8785, except that numbers are exact where RFC 8785
// rounds them to a double: 1, 1.0 and 10e-1 are the same, and so are 0 and -0.
// 9007199254740993 and 9007199254740992 are different, and 1e400 is a number.
//
// Fields are JSON Pointers (RFC 6901), such as /amount or /lines/0/sku, to the
// parts that are compared. Without fields, the whole document is compared. The
// order of fields and repeated fields do not matter. A field that is missing
// differs from one that is null. A malformed pointer is always an error,
// whatever the document is.
//
// A document that is not JSON, or that two parsers may read differently, is an
// error that gives the position of the offending byte. Examples are a duplicate
// name in an object, invalid UTF-8, a lone surrogate, a byte order mark, more
// than 64 levels, a number of 10^(10^18) or more or one as small, and more than
// 512 MiB. For such a document, use Fingerprint of its raw bytes, which never
// equals the fingerprint of a valid document.
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
