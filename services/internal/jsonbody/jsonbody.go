// Package jsonbody parses the small JSON objects that clients send. It is strict: it
// rejects duplicate names and everything else that two parsers may read differently,
// and Parse also rejects unknown members.
package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/contentcoding"
)

// A FieldError describes a mistake in a body, and names the field if there is one.
type FieldError struct{ Field, Detail string }

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// ErrTooLarge means that a body is longer than the limit.
var ErrTooLarge = errors.New("the body is too large")

// ErrEncoded means that a body has a content coding. No content coding is supported.
var ErrEncoded = errors.New("the body has a Content-Encoding, which is not supported: send it without one")

// RejectEncoded returns ErrEncoded if the request has a content coding, and sets
// Accept-Encoding in the response (RFC 9110, section 15.5.16).
func RejectEncoded(w http.ResponseWriter, r *http.Request) error {
	if contentcoding.Has(r.Header["Content-Encoding"]) {
		w.Header().Set("Accept-Encoding", "identity")
		return ErrEncoded
	}
	return nil
}

// Unfinished is the problem of a body that was truncated or arrived too slowly.
const Unfinished = "the body is incomplete"

// Read returns the body of a request whose content type is JSON. An empty body needs
// no content type. The error is ErrEncoded, ErrTooLarge or a *FieldError.
func Read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if err := RejectEncoded(w, r); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, ErrTooLarge
	case err != nil:
		return nil, &FieldError{Detail: Unfinished}
	case len(body) > 0 && !isJSON(r.Header.Values("Content-Type")):
		return nil, &FieldError{"Content-Type", "must be application/json"}
	}
	return body, nil
}

func isJSON(types []string) bool {
	if len(types) != 1 {
		return false
	}
	media, params, err := mime.ParseMediaType(types[0])
	charset, given := params["charset"]
	return err == nil && media == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
}

// An Object holds the members of a JSON object, by name.
type Object map[string]json.RawMessage

// Parse parses an object that may have only the members names, which are compared byte
// by byte. The error is a *FieldError.
func Parse(doc []byte, names ...string) (Object, error) {
	return parse(doc, func(name string) bool { return slices.Contains(names, name) })
}

// ParseOpen parses an object that may have any members. The error is a *FieldError.
func ParseOpen(doc []byte) (Object, error) {
	return parse(doc, func(string) bool { return true })
}

func parse(doc []byte, known func(name string) bool) (Object, error) {
	o, err := members(doc, known)
	var invalid *FieldError
	if errors.As(err, &invalid) {
		return nil, invalid
	}
	if _, strict := onlyonce.FingerprintJSON(doc); strict != nil || err != nil {
		return nil, &FieldError{Detail: "the body must be one valid JSON object in UTF-8"}
	}
	return o, nil
}

func members(doc []byte, known func(name string) bool) (Object, error) {
	o := Object{}
	dec := json.NewDecoder(bytes.NewReader(doc))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return nil, &FieldError{Detail: "the body must be a JSON object"}
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		if !known(name) {
			return nil, &FieldError{shown(name), "is not a known member"}
		}
		if _, twice := o[name]; twice {
			return nil, &FieldError{shown(name), "occurs twice"}
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		o[name] = value
	}
	_, err := dec.Token()
	return o, err
}

// shown shortens the name of an unknown member.
func shown(name string) string {
	if runes := []rune(name); len(runes) > 64 {
		return string(runes[:64]) + "…"
	}
	return name
}

// Has reports whether a member is present and not null.
func (o Object) Has(name string) bool {
	raw, ok := o[name]
	return ok && string(raw) != "null"
}

// String returns a member that is a string, or nil if it is null or absent.
func (o Object) String(name string) (*string, error) {
	raw := o[name]
	if !o.Has(name) {
		return nil, nil
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return nil, &FieldError{name, "must be a string"}
	}
	return &s, nil
}

// Text returns a member that must be a string of 1 to most characters.
func (o Object) Text(name string, most int) (string, error) {
	s, err := o.String(name)
	if err != nil {
		return "", err
	}
	if s == nil {
		return "", &FieldError{name, "is required"}
	}
	if n := utf8.RuneCountInString(*s); n < 1 || n > most {
		return "", &FieldError{name, fmt.Sprintf("must have 1 to %d characters", most)}
	}
	return *s, nil
}

// Integer returns a member that is written as an integer, without a point or
// an exponent, or nil if it is null or absent.
func (o Object) Integer(name string) (*int64, error) {
	raw := o[name]
	if !o.Has(name) {
		return nil, nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return nil, &FieldError{name, "must be an integer"}
	}
	return &n, nil
}

// Array returns the elements of a member that must be an array of 1 to most.
func (o Object) Array(name string, most int) ([]json.RawMessage, error) {
	raw := o[name]
	if !o.Has(name) {
		return nil, &FieldError{name, "is required"}
	}
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil || len(list) < 1 || len(list) > most {
		return nil, &FieldError{name, fmt.Sprintf("must be an array of 1 to %d elements", most)}
	}
	return list, nil
}
