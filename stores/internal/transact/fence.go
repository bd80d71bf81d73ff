package transact

import (
	"context"
	"time"
)

const (
	// keepTimeout bounds how long a caller waits until the fence of a transaction that was
	// not committed is kept. Often the server can't be reached then.
	keepTimeout = 5 * time.Second

	// keepPause is the longest pause between two tries.
	keepPause = 100 * time.Millisecond
)

// keepFence makes every later fence of the command higher than the one that the function
// got in a transaction that was not committed, or may not have been, if the database can
// be reached.
func (r *run[TX]) keepFence() {
	if r.issued == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.own, keepTimeout)
	defer cancel()
	for {
		err := r.on.KeepFence(ctx, &r.Command, r.issued)
		if err == nil || r.on.Classify(err) == Permanent || !Pause(ctx, keepPause) {
			return
		}
	}
}
