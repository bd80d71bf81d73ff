package caller

import (
	"crypto/sha256"
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
