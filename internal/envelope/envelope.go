// Package envelope recognizes a stored value that stores/cryptstore has encrypted, so that a
// program without the keys never takes it for a response.
package envelope

// Magic is how an encrypted value begins. The byte after it is the version of its form.
const Magic = "ooe"

// highestVersion is the highest version that there will be. Text has no such byte.
const highestVersion = 0x1f

// Is reports whether a value is encrypted.
func Is(b []byte) bool {
	return len(b) > len(Magic) && string(b[:len(Magic)]) == Magic && b[len(Magic)] <= highestVersion
}
