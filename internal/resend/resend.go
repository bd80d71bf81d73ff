// Package resend has what the client interceptors of the RPC adapters share: how often a call is
// sent, and how long its client waits in between.
package resend

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// These are the defaults of a Policy.
const (
	DefaultAttempts = 4
	DefaultWait     = 200 * time.Millisecond
)

// A Policy limits how often a call is sent.
type Policy struct {
	Attempts int           // how often at most
	Wait     time.Duration // before the second attempt; it doubles with each attempt, and has jitter
}

// New returns a Policy with defaults for the values that are zero. It panics on a negative one, in
// the name of a constructor such as "grpconce: UnaryClientInterceptor".
func New(constructor string, attempts int, wait time.Duration) Policy {
	if attempts < 0 || wait < 0 {
		panic(fmt.Sprintf("%s: Attempts is %d and Wait is %v: write positive values, or leave them 0 for the defaults", constructor, attempts, wait))
	}
	return Policy{cmp.Or(attempts, DefaultAttempts), cmp.Or(wait, DefaultWait)}
}

// Do calls send, and calls it again as long as it reports that another attempt can help. It waits
// before each further attempt, and at least for the time that send returns. It returns how often
// send was called, as soon as the attempts are used up or ctx has ended.
func (p Policy) Do(ctx context.Context, send func() (after time.Duration, again bool)) (attempts int) {
	for wait := p.Wait; ; wait *= 2 {
		attempts++
		after, again := send()
		if !again || attempts >= p.Attempts || ctx.Err() != nil {
			return attempts
		}
		timer := time.NewTimer(max(after, wait/2+rand.N(wait/2+1)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return attempts
		}
	}
}
