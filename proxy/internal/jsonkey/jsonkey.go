// Package jsonkey finds the idempotency key in a JSON body, and rejects bodies in
// which another reader may find another key, or none.
package jsonkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A Pointer consists of the tokens of a JSON Pointer (RFC 6901).
type Pointer []string

// Parse parses a JSON Pointer.
func Parse(pointer string) (Pointer, error) {
	if pointer == "" || pointer[0] != '/' {
		return nil, errors.New("KeyPointer " + pointer + ": write a JSON Pointer such as /request_id")
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		if rest := strings.NewReplacer("~0", "", "~1", "").Replace(t); strings.Contains(rest, "~") {
			return nil, errors.New("KeyPointer " + pointer + ": write ~0 for ~ and ~1 for / in a name")
		}
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens, nil
}

var errTwoKeys = errors.New("the body gives the key more than once")

// Key returns the key in a body, or "" if there is none. Its error is for clients.
func (p Pointer) Key(body []byte) (string, error) {
	key, err := p.find(body)
	if err == nil && !httpfield.IsText(key) {
		return "", errors.New("the key in the body has a control character")
	}
	return key, err
}

// find returns the string or the whole number to which the pointer leads in a JSON
// document, or "" if there is none. It returns an error if one server may find a key
// and another none or a different one: a name on the way occurs twice or in another
// case, the value has another type, or only a lenient parser reads the document.
func (p Pointer) find(doc []byte) (string, error) {
	value := bytes.TrimSpace(doc)
	switch {
	case len(value) == 0:
		return "", nil
	case !json.Valid(doc):
		return "", errors.New("the body, in which the key is looked for, is not JSON")
	case !utf8.Valid(doc): // readers that drop bytes of a name find another key, or none
		return "", errors.New("the body, in which the key is looked for, is not valid Unicode")
	}
	for _, token := range p {
		if value[0] != '{' {
			if value[0] != '[' {
				return "", nil
			}
			if value = element(value, token); value == nil {
				return "", nil
			}
			continue
		}
		var err error
		if value, err = member(value, token); value == nil {
			return "", err
		}
	}
	switch c := value[0]; {
	case c == '"':
		key := unquote(value)
		if key == "" {
			return "", errors.New("the key in the body is empty")
		}
		if !utf8.ValidString(key) || strings.ContainsRune(key, utf8.RuneError) {
			return "", errors.New("the key in the body is not valid Unicode") // readers that replace the bytes make one key of two
		}
		return key, nil
	case (c == '-' || '0' <= c && c <= '9') && !bytes.ContainsAny(value, ".eE"):
		return string(value), nil
	case c == 'n':
		return "", nil // null
	}
	return "", errors.New("the key in the body is neither a string nor a whole number")
}

// member returns the value of that name in a valid object, or nil.
func member(object []byte, name string) (value []byte, err error) {
	for rest := skipSpace(object[1:]); rest[0] != '}'; {
		end := valueEnd(rest)
		found := unquote(rest[:end])
		rest = skipSpace(skipSpace(rest[end:])[1:]) // the colon
		end = valueEnd(rest)
		if strings.EqualFold(found, name) {
			if value != nil {
				return nil, errTwoKeys
			}
			if value = rest[:end]; found != name {
				return nil, errors.New("the body has the key by a name in another case")
			}
		}
		if rest = skipSpace(rest[end:]); rest[0] == ',' {
			rest = skipSpace(rest[1:])
		}
	}
	return value, nil
}

// element returns the element of that index in a valid array, or nil.
func element(array []byte, index string) []byte {
	if n := syntax.ParseLength(index); n < 0 || n > 0 && index[0] == '0' || n == 0 && len(index) > 1 {
		return nil
	}
	left := syntax.ParseLength(index)
	for rest := skipSpace(array[1:]); rest[0] != ']'; left-- {
		end := valueEnd(rest)
		if left == 0 {
			return rest[:end]
		}
		if rest = skipSpace(rest[end:]); rest[0] == ',' {
			rest = skipSpace(rest[1:])
		}
	}
	return nil
}

// valueEnd returns where the first value of valid JSON ends.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']', ',', ' ', '\t', '\r', '\n', ':':
			if depth == 0 {
				return i
			}
			if c := b[i]; c == '}' || c == ']' {
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	return len(b)
}

func skipSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// unquote returns the value of a valid JSON string.
func unquote(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1])
	}
	var s string
	_ = json.Unmarshal(b, &s) // it is valid
	return s
}
