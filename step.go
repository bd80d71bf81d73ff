package onlyonce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Step runs one step of a command that has several. If an earlier attempt at
// the command finished the step with that name, Step returns its value, and fn
// does not run. The value is stored as JSON before Step returns, and decoded as
// that of Do. An error of fn is not stored. Each step of a command needs a name of
// its own, such as one with the number of the order's line: within one attempt, a
// second step of the same name is an error and does not run, unless the first
// returned an error. Once the attempt's lease is lost, fn does not run. If fn has run
// and its value can't be stored, the error is marked Unknown. If the attempt then
// fails, or is released, its outcome is unknown, even if its function or handler returns
// another error. The same holds if fn panics and the panic is recovered, or if fn is still
// running when the attempt ends.
//
// A process can still die after fn has run and before its value is stored. If
// the downstream API supports idempotency keys, send it Attempt.Key(name). Step
// needs the context of a function that Do or httponce.Wrap runs. Inside a
// transaction, it is an error, and fn does not run: in DoTx, nothing could store the step
// before the commit, and in SettleTx or httponce.InTx, storing it might wait for that very
// transaction. Run it before them.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	need("Step", ctx != nil, needContext)
	need("Step", fn != nil, needFunction)
	var value T
	a := Current(ctx)
	if a != nil && (a.endsInTx() || a.lease.inTx()) {
		return value, fmt.Errorf("onlyonce: step %q: steps cannot be stored inside a transaction: use Do or httponce.Wrap, and run the steps before SettleTx or httponce.InTx", name)
	}
	if a == nil || !a.held {
		return value, fmt.Errorf("onlyonce: step %q: the context has no attempt: pass the context that the command's function got", name)
	}
	if !a.beginStep(name) {
		return value, fmt.Errorf("onlyonce: step %q has already begun in this attempt: give each step of a command a name of its own", name)
	}
	if stored, ok := a.Record().Steps[name]; ok && a.lease.over() == nil {
		value, err := decode[T](stored)
		if err != nil {
			return value, Unknown(fmt.Errorf("onlyonce: step %q: decode the stored value: %w: %w", name, ErrCorrupt, err))
		}
		return value, nil
	}
	a.countUnstored(1) // before the lease is checked, so that a settlement does not miss a step that is about to run
	if err := a.lease.over(); err != nil {
		a.countUnstored(-1)
		return value, fmt.Errorf("onlyonce: step %q did not run: %w", name, err)
	}
	value, err := fn(ctx)
	if err != nil {
		a.countUnstored(-1)
		a.endStep(name)
		return value, err
	}
	body, err := toJSON(&value)
	if err == nil {
		err = a.keepStep(ctx, name, body)
	}
	if err != nil {
		return value, Unknown(fmt.Errorf("onlyonce: step %q ran but is not stored: %w", name, err))
	}
	a.countUnstored(-1)
	return value, nil
}

// beginStep returns false if a step with that name is running or has run in this attempt,
// unless it returned an error.
func (a *Attempt) beginStep(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, begun := a.begun[name]; begun {
		return false
	}
	if a.begun == nil {
		a.begun = make(map[string]struct{}, 1)
	}
	a.begun[name] = struct{}{}
	return true
}

// endStep lets a step that returned an error run again in this attempt.
func (a *Attempt) endStep(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.begun, name)
}

// countUnstored counts a step that begins, or one that has ended and need not run again.
func (a *Attempt) countUnstored(n int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unstored += n
}

// keepStep adds the step to the record. It retries for at most one lease and
// gives each try a third of that: a connection may be dead although the
// renewals succeed on another one, and a store may reject the step every time.
func (a *Attempt) keepStep(ctx context.Context, name string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, a.lease.full)
	defer cancel()
	for every := firstPoll; ; every = min(2*every, time.Second) {
		err := a.renewWithin(ctx, a.lease.full/3, map[string][]byte{name: body})
		if err == nil {
			break
		}
		if errors.Is(err, ErrLost) || errors.Is(err, ErrTooLarge) || a.guard.inTx {
			return err
		}
		if pause(ctx, every); ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if over := a.lease.over(); over != nil {
			return fmt.Errorf("%w: %w", over, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	steps := maps.Clone(a.rec.Steps)
	if steps == nil {
		steps = make(map[string][]byte, 1)
	}
	steps[name] = body
	a.rec.Steps = steps
	return nil
}
