package transact

import "crypto/sha256"

// Locks are what a transaction that runs a command takes, in this order: the
// lock of what is asked for, and the command's. A request that finds the first free and
// the second taken asks for something else under the same key, unless the running
// one takes Uncompared, the first lock of a request without a fingerprint.
type Locks struct{ Request, Command, Uncompared [32]byte }

// LocksOf returns the locks of a request: of the hash of its ID and of its
// fingerprint, which may be nil.
func LocksOf(hash [32]byte, fingerprint []byte) Locks {
	text := append(append(make([]byte, 0, 128), 0), hash[:]...) // with room for a fingerprint
	locks := Locks{Command: hash, Uncompared: sha256.Sum256(text)}
	locks.Request = locks.Uncompared
	if fingerprint != nil {
		text[0] = 1
		locks.Request = sha256.Sum256(append(text, fingerprint...))
	}
	return locks
}

// What came of taking them.
const (
	LockMine  = "mine"  // the command may run
	LockBusy  = "busy"  // a transaction runs it
	LockOther = "other" // a transaction runs it, and was asked for something else
)

// Another is the fingerprint of a command that a transaction runs and that is
// another request's: its own is not in the database yet.
var Another = []byte("of another request")
