package transact

import "crypto/sha256"

// Locks are the locks that a transaction takes to run a command, in this order: the
// request's, and the command's. If a request gets the first and not the second, a different
// request is running under the same key, unless that one holds Uncompared, the first lock
// of a request without a fingerprint.
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

// The results of taking the locks.
const (
	LockMine  = "mine"  // the command may run
	LockBusy  = "busy"  // a transaction runs it
	LockOther = "other" // a transaction runs it for a different request
)

// Another stands for the fingerprint of a different request whose command a transaction
// runs. Its own fingerprint is not in the database yet.
var Another = []byte("of another request")
