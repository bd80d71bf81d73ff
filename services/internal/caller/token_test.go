package caller

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestToken_ATokenIsComparedWithTheWholeList(t *testing.T) {
	hash := sha256.Sum256([]byte("secret"))
	twice := Tokens{list: []token{{"ada", hash}, {"bob", hash}, {owner: "carol"}}}
	if owner, ok := twice.Owner("secret"); owner != "bob" || !ok {
		t.Errorf("the search ended at %q", owner)
	}
	if owner, ok := twice.Owner("other"); ok {
		t.Errorf("another token is that of %q", owner)
	}
}

func TestToken_AnEmptyTokenNamesNobody(t *testing.T) {
	p := Policy{Tokens: Tokens{list: []token{{"ada", sha256.Sum256(nil)}}}}
	for _, authorization := range []string{"Bearer", "Bearer ", "bearer  \t"} {
		if owner, err := p.Name(http.Header{"Authorization": {authorization}}); err != ErrUnauthorized {
			t.Errorf("%q: %q, %v", authorization, owner, err)
		}
	}
}

func TestSecurity_TheNameOfARevokedTokensOwnerStaysReserved(t *testing.T) {
	hash := sha256.Sum256([]byte("ada-new"))
	tokens, err := ParseTokens(strings.NewReader(fmt.Sprintf("ada revoked\nada %x\nbob revoked\ncarol revoked\ncarol revoked\n", hash)))
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Tokens: tokens, AllowAnonymous: true, Header: "X-Owner"}
	for _, name := range []string{"ada", "bob", "carol"} {
		if owner, err := p.Name(http.Header{"X-Owner": {name}}); err != ErrUnauthorized {
			t.Errorf("a caller without a token took the name %s: %q, %v", name, owner, err)
		}
	}
	for _, secret := range []string{"revoked", "", "bob"} {
		if owner, err := p.Name(http.Header{"Authorization": {"Bearer " + secret}}); err != ErrUnauthorized {
			t.Errorf("%q is a token of %q, %v", secret, owner, err)
		}
	}
	if owner, err := p.Name(http.Header{"Authorization": {"Bearer ada-new"}}); owner != "ada" || err != nil {
		t.Errorf("another token of the same owner: %q, %v", owner, err)
	}
}
