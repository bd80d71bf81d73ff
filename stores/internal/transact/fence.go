package transact

import (
	"context"
	"time"
)

const (
	// keepTimeout bounds how long a caller waits for a fence to be kept that its
	// function got in vain: mostly the server can't be reached.
	keepTimeout = 5 * time.Second

	// keepPause is the longest pause between two tries.
	keepPause = 100 * time.Millisecond
)

// keepFence makes every fence to come for the command higher than one that the
// function got in vain, as far as the database can be reached.
func (r *run[TX]) keepFence() {
	if r.given == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.own, keepTimeout)
	defer cancel()
	for {
		err := r.on.KeepFence(ctx, &r.Command, r.given)
		if err == nil || r.on.Classify(err) == Permanent || !Pause(ctx, keepPause) {
			return
		}
	}
}
