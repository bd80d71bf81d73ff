package onlyonce_test

import (
	"bytes"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// IDs with other parts are different, even if the parts join to the same text.
var lookalikes = []onlyonce.ID{
	{Tenant: "a", Operation: "", Key: "b|c"},
	{Tenant: "a|b", Operation: "", Key: "c"},
	{Tenant: "a", Operation: "b", Key: "c"},
	{Tenant: "ab", Operation: "", Key: "c"},
	{Tenant: "", Operation: "ab", Key: "c"},
	{Tenant: "", Operation: "", Key: "abc"},
	{Tenant: "a", Operation: "b/c", Key: ""},
	{Tenant: "a/b", Operation: "c", Key: ""},
	{Tenant: "a\x00", Operation: "b", Key: "c"},
	{Tenant: "a", Operation: "\x00b", Key: "c"},
	{Tenant: "A", Operation: "b", Key: "c"},
	{Tenant: "a ", Operation: "b", Key: "c"},
	{Tenant: "á", Operation: "b", Key: "c"},
	{Tenant: "a\u0301", Operation: "b", Key: "c"},
}

func TestSecurity_NoTwoIDsHaveTheSameHash(t *testing.T) {
	seen := map[[32]byte]onlyonce.ID{}
	for _, id := range lookalikes {
		if other, there := seen[id.Hash()]; there {
			t.Errorf("%q and %q have the same hash", id, other)
		}
		seen[id.Hash()] = id
	}
}

func TestFingerprint_AFingerprintKeepsItsPartsApart(t *testing.T) {
	one := onlyonce.Fingerprint([]byte("ab"), []byte("c"))
	for _, parts := range [][][]byte{{[]byte("a"), []byte("bc")}, {[]byte("abc")}, {[]byte("ab"), []byte("c"), nil}, nil} {
		if bytes.Equal(one, onlyonce.Fingerprint(parts...)) {
			t.Errorf("parts %q are not told from ab, c", parts)
		}
	}
	if again := onlyonce.Fingerprint([]byte("ab"), []byte("c")); !bytes.Equal(one, again) || len(one) != 32 {
		t.Errorf("fingerprints %x and %x", one, again)
	}
}
