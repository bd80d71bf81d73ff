package cryptstore

import (
	"bytes"
	"encoding/hex"
	"testing"
)

func TestXAES_TheVectorsOfC2SP(t *testing.T) {
	const nonce, plaintext = "ABCDEFGHIJKLMNOPQRSTUVWX", "XAES-256-GCM"
	for _, v := range []struct {
		key                byte
		associated, sealed string
	}{
		{1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		{3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		x := newXAES([keySize]byte(bytes.Repeat([]byte{v.key}, keySize)))
		sealed := x.seal(nil, []byte(nonce), []byte(plaintext), []byte(v.associated))
		if got := hex.EncodeToString(sealed); got != v.sealed {
			t.Errorf("with the key %d, it is %s, want %s", v.key, got, v.sealed)
		}
		if got, err := x.open([]byte(nonce), sealed, []byte(v.associated)); err != nil || string(got) != plaintext {
			t.Errorf("with the key %d, it was opened as %q, error %v", v.key, got, err)
		}
	}
}
