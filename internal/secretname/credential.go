package secretname

import (
	"bytes"
	"strings"
)

// ofSecrets are words in the names of headers that carry credentials, however the
// words are separated. A header whose name only looks like that of a secret is not
// stored either: its absence from a replay can be noticed and fixed, but a secret that
// was stored can't be taken back.
var ofSecrets = [...]string{
	"token", "secret", "session", "sessid", "cookie", "credential", "passw", "passphrase", "apikey", "accesskey",
	"privatekey", "signingkey", "encryptionkey", "authoriz", "authent", "authn", "oauth", "bearer", "jwt",
	"csrf", "xsrf", "samlresponse", "onetime",
}

// ofSecretsAlone are words that mean a secret only if they stand alone: "Author"
// is not "Auth".
var ofSecretsAlone = [...]string{"auth", "key", "keys", "otp", "totp", "mfa", "pin", "sid", "ticket", "assertion"}

// OfCredential reports whether a header, or metadata of gRPC, has the name of one that carries
// a credential. OfSecret finds some names that it does not, such as x-signature.
func OfCredential(name string) bool {
	var room [64]byte
	joined := room[:0]
	for i := range len(name) {
		if c := lower(name[i]); c != '-' && c != '_' && c != '.' {
			joined = append(joined, c)
		}
	}
	for _, word := range ofSecrets {
		if bytes.Contains(joined, []byte(word)) {
			return true
		}
	}
	for rest := name; rest != ""; {
		var word string
		if i := strings.IndexAny(rest, "-_."); i >= 0 {
			word, rest = rest[:i], rest[i+1:]
		} else {
			word, rest = rest, ""
		}
		for _, w := range ofSecretsAlone {
			if strings.EqualFold(word, w) {
				return true
			}
		}
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}
