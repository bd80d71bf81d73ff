package caller

import (
	"crypto/sha256"
	"net/http"
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
