package cryptstore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
)

const (
	keySize   = 32
	nonceSize = 24
	tagSize   = 16
)

// An xaes is a key for XAES-256-GCM, as C2SP specifies it: a key for AES-256-GCM is derived
// from the key and the first half of a nonce of 24 bytes, and the second half is the nonce
// for AES-256-GCM. Random nonces of that length do not repeat in practice, however many
// values are sealed with one key.
type xaes struct {
	block  cipher.Block
	subkey [aes.BlockSize]byte // K1 of CMAC
}

func newXAES(key [keySize]byte) *xaes {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	x := &xaes{block: block}
	block.Encrypt(x.subkey[:], x.subkey[:])
	var carry byte
	for i := len(x.subkey) - 1; i >= 0; i-- {
		b := x.subkey[i]
		x.subkey[i], carry = b<<1|carry, b>>7
	}
	x.subkey[len(x.subkey)-1] ^= 0x87 * carry
	return x
}

// derive returns AES-256-GCM with the key for the first half of a nonce. The key is that of
// the KDF of NIST SP 800-108r1 in counter mode with CMAC, whose two inputs are one block each.
func (x *xaes) derive(nonce []byte) cipher.AEAD {
	var key [keySize]byte
	for i := range keySize / aes.BlockSize {
		part := key[i*aes.BlockSize:][:aes.BlockSize]
		copy(part, []byte{0, byte(i + 1), 'X', 0})
		copy(part[4:], nonce[:nonceSize/2])
		subtle.XORBytes(part, part, x.subkey[:])
		x.block.Encrypt(part, part)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // the block has the right size
	}
	return gcm
}

// seal appends the encrypted plaintext and its tag to dst.
func (x *xaes) seal(dst, nonce, plaintext, associated []byte) []byte {
	return x.derive(nonce).Seal(dst, nonce[nonceSize/2:], plaintext, associated)
}

// open returns the plaintext, or an error if anything differs from the sealed text.
func (x *xaes) open(nonce, sealed, associated []byte) ([]byte, error) {
	return x.derive(nonce).Open(nil, nonce[nonceSize/2:], sealed, associated)
}
