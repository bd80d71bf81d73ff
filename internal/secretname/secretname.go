// Package secretname knows the names of members, headers and fields whose values are secrets
// or personal, and are therefore never shown to operators.
package secretname

import (
	"strings"
	"unicode"
)

// Redacted stands for a value that is not shown.
const Redacted = "•••"

// Names returns the names to which operators can add their own.
func Names() []string {
	return []string{
		"password", "passwd", "passphrase", "secret", "token", "api_key", "private_key", "access_key", "credential",
		"authorization", "cookie", "session_id", "signature", "card_number", "account_number", "cvv", "cvc", "pin", "ssn", "iban",
	}
}

// Plain is a name without case and punctuation: api_key, API-Key and apiKey are one.
func Plain(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

// plainNames are Names in the form of Plain.
var plainNames = func() (plain []string) {
	for _, name := range Names() {
		plain = append(plain, Plain(name))
	}
	return plain
}()

// OfSecret reports whether name matches one of Names.
func OfSecret(name string) bool { return Matches(name, plainNames) }

// ShortestPart is the length of the shortest name that longer names may contain.
const ShortestPart = 4

// Matches reports whether name is one of the plain names, or contains one that is not too
// short for that.
func Matches(name string, plain []string) bool {
	name = Plain(name)
	for _, secret := range plain {
		if name == secret || len(secret) >= ShortestPart && strings.Contains(name, secret) {
			return true
		}
	}
	return false
}
