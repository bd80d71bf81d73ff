package record

import "crypto/rand"

// NewOwner returns a random owner for a record that a person decided about. It
// is no claim's.
func NewOwner() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return string(b)
}
