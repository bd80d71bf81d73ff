package cryptstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A Config controls how records are encrypted. Keys must be set.
type Config struct {
	// Keys supplies the keys. See KeysFromFile, KeysFromEnv and ParseKeys.
	Keys Keys

	// CacheKeys is how long a key is used without asking Keys for it again. Default 10
	// minutes. Once half of it has passed, the key is fetched again in the background. A new
	// current key is therefore used at the latest after this time, and so long may a key
	// that has been deleted still be used. If Keys fails for longer, no command
	// begins, but an attempt that has begun stores its steps and its result with the key that was
	// the current one when Keys last returned it. The same goes for an attempt that ends, or stores
	// a step, while a call of Keys takes longer than half a second.
	CacheKeys time.Duration

	// AcceptPlaintext accepts values that are not encrypted, so that an existing store can
	// be wrapped. While it is set, anyone who can write to the store can replace a response
	// by one of their own. Unset it when the last record from before has expired. Without
	// it, every call that has to read such a record returns ErrNotEncrypted and
	// onlyonce.ErrUnavailable, and its command does not run.
	AcceptPlaintext bool

	// NoCompression turns off the compression of values before they are encrypted. How well
	// a value can be compressed shows in its encrypted length: see the package comment.
	NoCompression bool
}

// A Cipher encrypts and decrypts the contents of records. It is safe for concurrent use. Wrap
// and WrapTx make stores of it.
type Cipher struct {
	keys            keyCache
	acceptPlaintext bool
	noCompression   bool
}

// New returns a Cipher. It panics on an invalid Config.
func New(cfg Config) *Cipher {
	if cfg.Keys == nil {
		panic("cryptstore: Config.Keys is nil: set it to what KeysFromFile returns, or to other Keys")
	}
	keep := defaults.Positive("cryptstore: Config.CacheKeys", cfg.CacheKeys, 10*time.Minute)
	return &Cipher{
		keys:            keyCache{keys: cfg.Keys, keep: keep, byID: make(map[string]*cachedKey)},
		acceptPlaintext: cfg.AcceptPlaintext,
		noCompression:   cfg.NoCompression,
	}
}

// current returns the key for new values.
func (c *Cipher) current(ctx context.Context) (*readyKey, error) { return c.keys.get(ctx, "") }

// currentOrLast returns the key for new values of an attempt, which would be lost without one.
func (c *Cipher) currentOrLast(ctx context.Context) (*readyKey, error) { return c.keys.getLast(ctx) }

// settles reports whether records in the state have a result.
func settles(s onlyonce.State) bool {
	return s == onlyonce.StateCompleted || s == onlyonce.StateFailed || s == onlyonce.StateUnknown
}

// resultPlace is where a result belongs: to its record, and to everything else that the
// settlement has stored. failure is the error as it is stored.
func resultPlace(id onlyonce.ID, s onlyonce.State, r *onlyonce.Result, final bool, failure string) place {
	final = final && s == onlyonce.StateFailed // it means nothing in other states
	return place{id: id, field: "result", with: []string{string(s), strconv.Itoa(r.Status), r.Ref, strconv.FormatBool(final), failure}}
}

func errorPlace(id onlyonce.ID) place { return place{id: id, field: "error"} }

func summaryPlace(id onlyonce.ID) place { return place{id: id, field: "summary"} }

func stepPlace(id onlyonce.ID, name string) place {
	return place{id: id, field: "step", with: []string{name}}
}

// sealSettlement returns the settlement as it is stored. removed names the steps of the record
// that can't be read, or not with a key that will be kept. A settlement that releases the command, or that Settlement.Check
// rejects, stays as it is.
func (c *Cipher) sealSettlement(k *readyKey, id onlyonce.ID, s onlyonce.Settlement, removed []string) onlyonce.Settlement {
	if s.State == "" || s.Check() != nil {
		return s
	}
	p := payload{header: s.Result.Header, body: s.Result.Body, removed: removed}
	s.Error = c.sealText(k, errorPlace(id), s.Error)
	s.Result.Body = c.seal(k, resultPlace(id, s.State, &s.Result, s.Final, s.Error), p.encode())
	s.Result.Header = nil
	return s
}

// sealSteps returns the steps as they are stored.
func (c *Cipher) sealSteps(k *readyKey, id onlyonce.ID, steps map[string][]byte) map[string][]byte {
	sealed := make(map[string][]byte, len(steps))
	for name, b := range steps {
		sealed[name] = c.seal(k, stepPlace(id, name), b)
	}
	return sealed
}

// removeSteps returns the value that is stored in place of steps that can't be read.
func removeSteps(k *readyKey, id onlyonce.ID, names []string) map[string][]byte {
	sealed := make(map[string][]byte, len(names))
	for _, name := range names {
		sealed[name] = k.seal(stepPlace(id, name), nil, flagRemoved)
	}
	return sealed
}

// An openRecord is a record that has been decrypted.
type openRecord struct {
	onlyonce.Record
	damaged []string // the names of steps that can't be read, which Steps does not have
}

// openRecord decrypts a record. A part that cannot be read makes the record corrupt, unless its lease is
// alive, because then an attempt holds the command. An error means that the record can't be
// read now, and may be undamaged.
func (c *Cipher) openRecord(ctx context.Context, stored onlyonce.Record) (openRecord, error) {
	o := openRecord{Record: stored}
	o.Result.Header, o.Result.Body, o.Steps = nil, nil, nil
	var err error
	if o.Summary, err = c.openSummary(ctx, &stored); err != nil {
		return openRecord{}, err
	}
	var found error // the first damage
	note := func(what string, err error) error {
		if errors.Is(err, onlyonce.ErrCorrupt) {
			found = errors.Join(found, fmt.Errorf("%s: %w", what, err))
			return nil
		}
		return err
	}
	var p payload
	if !stored.Corrupt { // whose error is the store's, and whose state is not the stored one
		var err error
		o.Error, err = c.openError(ctx, &stored)
		if err := note("the error", err); err != nil {
			return openRecord{}, err
		}
		if settles(stored.State) {
			p, err = c.openResult(ctx, &stored)
			if err := note("the result", err); err != nil {
				return openRecord{}, err
			}
			o.Result.Header, o.Result.Body = p.header, p.body
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stored.Steps)) {
		if slices.Contains(p.removed, name) {
			o.damaged = append(o.damaged, name)
			continue
		}
		b, removed, err := c.openStep(ctx, stored.ID, name, stored.Steps[name])
		if errors.Is(err, onlyonce.ErrCorrupt) {
			o.damaged = append(o.damaged, name)
		}
		if err := note("the step "+strconv.Quote(name), err); err != nil {
			return openRecord{}, err
		}
		if err == nil && !removed {
			if o.Steps == nil {
				o.Steps = make(map[string][]byte, len(stored.Steps))
			}
			o.Steps[name] = b
		}
	}
	if found != nil && (stored.State != onlyonce.StateProcessing || stored.LeaseLeft <= 0) && !stored.Corrupt {
		o.State, o.Corrupt, o.Error = onlyonce.StateUnknown, true, fmt.Sprintf("%v: %v", onlyonce.ErrCorrupt, found)
		o.Result.Header, o.Result.Body, o.LeaseLeft = nil, nil, 0
	}
	return o, nil
}

// dropped returns the steps that the record, which was stored so, has no longer, as they are
// stored.
func (o *openRecord) dropped(stored onlyonce.Record) map[string][]byte {
	steps := make(map[string][]byte, len(o.damaged))
	for _, name := range o.damaged {
		steps[name] = stored.Steps[name]
	}
	return steps
}

// openTaken decrypts a record that a claim has taken over. What its result said about dropped
// steps went with the result. Such a step may need a key that is gone, because Rekey has dropped
// it: it then counts as one that can't be read, and runs again.
func (c *Cipher) openTaken(ctx context.Context, stored onlyonce.Record, dropped map[string][]byte) (openRecord, error) {
	o, err := c.openRecord(ctx, stored)
	if !errors.Is(err, ErrUnknownKey) {
		return o, err
	}
	var names []string
	left := maps.Clone(stored.Steps)
	for name, b := range dropped {
		if bytes.Equal(left[name], b) {
			names = append(names, name)
			delete(left, name)
		}
	}
	if len(names) == 0 {
		return o, err
	}
	stored.Steps = left
	o, err = c.openRecord(ctx, stored)
	o.damaged = append(o.damaged, names...)
	return o, err
}

// openError returns the text of the last failure.
func (c *Cipher) openError(ctx context.Context, stored *onlyonce.Record) (string, error) {
	s, err := c.openText(ctx, errorPlace(stored.ID), stored.Error)
	switch {
	case err != ErrNotEncrypted:
		return s, err
	case settles(stored.State) && isEnvelope(stored.Result.Body): // it was stored with the result
		return "", errReplaced
	case c.acceptPlaintext:
		return stored.Error, nil
	}
	return "", err
}

// openSummary returns the summary of the request, or a sentence that says why it can't be
// shown. Nothing depends on it, so a summary that can't be read keeps no command from running.
func (c *Cipher) openSummary(ctx context.Context, stored *onlyonce.Record) (string, error) {
	s, err := c.openText(ctx, summaryPlace(stored.ID), stored.Summary)
	switch {
	case err == ErrNotEncrypted && c.acceptPlaintext:
		return stored.Summary, nil
	case errors.Is(err, onlyonce.ErrCorrupt):
		return fmt.Sprintf("%v: the summary: %v", onlyonce.ErrCorrupt, err), nil
	case errors.Is(err, ErrUnknownKey), errors.Is(err, ErrNotEncrypted):
		return fmt.Sprintf("the summary can't be shown: %v", err), nil
	}
	return s, err
}

// openResult returns the result of a settled record.
func (c *Cipher) openResult(ctx context.Context, stored *onlyonce.Record) (payload, error) {
	r := &stored.Result
	switch {
	case !isEnvelope(r.Body) && c.acceptPlaintext:
		return payload{header: r.Header, body: r.Body}, nil
	case !isEnvelope(r.Body):
		return payload{}, ErrNotEncrypted
	case len(r.Header) > 0:
		return payload{}, errHeader
	}
	b, removed, err := c.open(ctx, resultPlace(stored.ID, stored.State, r, stored.Final, stored.Error), r.Body)
	switch {
	case err != nil:
		return payload{}, err
	case removed:
		return payload{}, errChanged
	}
	return decodePayload(b)
}

// openStep returns the value of a step, or removed if it is not there any more.
func (c *Cipher) openStep(ctx context.Context, id onlyonce.ID, name string, stored []byte) (b []byte, removed bool, err error) {
	b, removed, err = c.open(ctx, stepPlace(id, name), stored)
	switch {
	case c.acceptPlaintext && err == ErrNotEncrypted:
		return stored, false, nil
	case err == nil && b == nil:
		b = []byte{}
	}
	return b, removed, err
}
