package httpfield_test

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

func TestIsToken_ReportsWhatCanBeTheNameOfAHeader(t *testing.T) {
	for s, want := range map[string]bool{
		"X-Key_1": true, "!#$%&'*+-.^_`|~": true, "0": true, "az": true, "AZ": true,
		"": false, "a b": false, "a:": false, "ä": false, "a\x00": false, "a/b": false, "a@": false, "[": false, "a{": false, `"a"`: false,
	} {
		if httpfield.IsToken(s) != want {
			t.Errorf("IsToken(%q) is %v", s, !want)
		}
	}
	for b := range 256 {
		if s := string([]byte{byte(b)}); httpfield.IsTokenByte(byte(b)) != httpfield.IsToken(s) {
			t.Errorf("IsTokenByte(%q) is not IsToken", s)
		}
	}
}

func TestIsUnambiguous_ReportsWhichNamesHaveNoOtherSpelling(t *testing.T) {
	for s, want := range map[string]bool{
		"X-Tenant": true, "x1": true, "-": true,
		"": false, "X_Tenant": false, "X.Tenant": false, "X Tenant": false, "X@": false, "X[": false, "X`": false, "X{": false, "Ä": false, "X\xc1": false,
	} {
		if httpfield.IsUnambiguous(s) != want {
			t.Errorf("IsUnambiguous(%q) is %v", s, !want)
		}
	}
}

func TestIsText_ReportsWhatCanBeTheValueOfAHeader(t *testing.T) {
	for s, want := range map[string]bool{"": true, "a\tb ä\x80": true, "a\r": false, "a\n": false, "\x00": false, "\x7f": false, "\x1f": false} {
		if httpfield.IsText(s) != want || httpfield.IsText([]byte(s)) != want {
			t.Errorf("IsText(%q) is %v", s, !want)
		}
	}
}

func TestOf_TheHeadersOfAConnectionAndOfAResponse(t *testing.T) {
	for _, name := range strings.Fields("Connection Keep-Alive Proxy-Connection Te Transfer-Encoding Upgrade") {
		if !httpfield.OfConnection(name) || httpfield.OfResponse(name) {
			t.Errorf("%s is not of a connection", name)
		}
	}
	for _, name := range []string{httpfield.Replayed, httpfield.Replay, httpfield.Expires, httpfield.Protected} {
		if httpfield.OfConnection(name) || !httpfield.OfResponse(name) {
			t.Errorf("%s is not of a response", name)
		}
	}
	for _, name := range []string{"", "Content-Type", "Idempotency-Key", httpfield.Attempt, httpfield.Fence} {
		if httpfield.OfConnection(name) || httpfield.OfResponse(name) {
			t.Errorf("%q is of a connection or of a response", name)
		}
	}
}
