package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A storeTarget is a store under load: it calls onlyonce.Do with a function that
// only returns a result.
type storeTarget struct {
	shown  string
	store  onlyonce.Store
	guard  *onlyonce.Guard
	tenant string
	filler string
	keep   time.Duration
	shut   func() error
}

// A store in memory keeps records for at most this long, unless there are few
// requests; otherwise, they would fill the memory.
const (
	keepInMemory = time.Second
	fewRequests  = 100_000
)

// openStoreTarget opens an existing store; it creates only a missing SQLite file.
func openStoreTarget(ctx context.Context, c *config, raw string) (target, error) {
	s := &storeTarget{
		tenant: "bench-" + strings.ToLower(rand.Text()[:10]), keep: c.keep,
		filler: strings.Repeat("x", c.resultSize-leastResult),
	}
	if raw == "memory://" || raw == "memory:" {
		if c.requests == 0 || c.requests > fewRequests {
			s.keep = min(s.keep, keepInMemory)
		}
		s.shown, s.store = "memory://", memstore.New(memstore.Config{MaxRecords: 10_000_000, MaxBytes: 2 << 30})
		s.shut = func() error { return nil }
	} else if err := s.open(ctx, raw, c.acceptRisks); err != nil {
		return nil, err
	}
	s.guard = onlyonce.New(s.store, onlyonce.Config{Keep: s.keep, HoldUnknown: true})
	return s, nil
}

func (s *storeTarget) open(ctx context.Context, raw string, acceptRisks []string) error {
	if strings.HasPrefix(raw, schemePgx) {
		store, shown, shut, err := openPgx(ctx, raw, acceptRisks)
		if err != nil {
			return err
		}
		s.store, s.shown, s.shut = store, shown, shut
		return nil
	}
	u, err := storeurl.Parse(raw)
	if err != nil {
		return err
	}
	if _, missing := os.Stat(u.Path); u.Engine == storeurl.SQLite && errors.Is(missing, fs.ErrNotExist) {
		store, err := u.OpenMigrated(ctx, acceptRisks)
		if err != nil {
			return err
		}
		s.use(u, store)
		return nil
	}
	store, err := u.OpenRecords(ctx, acceptRisks)
	if err != nil {
		return err
	}
	s.use(u, store)
	return nil
}

func (s *storeTarget) use(u storeurl.URL, store storeurl.Records) {
	s.shown, s.store, s.shut = u.String(), store, store.Close
}

func (s *storeTarget) String() string { return s.shown }
func (s *storeTarget) close() error   { return s.shut() }

func (s *storeTarget) keeps() time.Duration { return s.keep }

func (s *storeTarget) send(ctx context.Context, k *trackedKey) (outcome, error) {
	answer, err := onlyonce.Do(ctx, s.guard, onlyonce.Request{
		ID:          onlyonce.ID{Tenant: s.tenant, Operation: "bench", Key: k.name},
		Fingerprint: onlyonce.Fingerprint([]byte(k.name)),
	}, func(context.Context) (string, error) {
		response := rand.Text()[:leastResult] + s.filler
		k.recordRun(response)
		return response, nil
	})
	switch {
	case err == nil && answer.Replayed:
		k.check(answer.Value)
		return outcomeReplayed, nil
	case err == nil:
		return outcomeExecuted, nil
	case errors.Is(err, onlyonce.ErrInFlight):
		return outcomeInFlight, nil
	case errors.Is(err, onlyonce.ErrMismatch):
		return outcomeMismatch, err
	case errors.Is(err, onlyonce.ErrFailed), errors.Is(err, onlyonce.ErrUnknown):
		return outcomeFailed, err
	}
	return outcomeErrored, err
}

func (s *storeTarget) finish(*keySet) {}

// clean waits until the last key has expired, and then purges.
func (s *storeTarget) clean(ctx context.Context, log io.Writer, ended time.Time, leave bool) error {
	if _, inMemory := s.store.(*memstore.Store); inMemory {
		return nil
	}
	if _, purges := s.store.(onlyonce.Purger); !purges {
		fmt.Fprintf(log, "the keys of the tenant %s expire within %v, and %v deletes them an hour later\n", s.tenant, s.keep, s)
		return nil
	}
	if leave {
		fmt.Fprintf(log, "the keys of the tenant %s are left in %v; they expire within %v, and the next purge deletes them\n", s.tenant, s, s.keep)
		return nil
	}
	fmt.Fprintf(log, "waiting until the keys in %v have expired, %v after the end, to purge them; Ctrl-C leaves them to the next purge\n", s, s.keep)
	if !pauseUntil(ctx, ended.Add(s.keep+leastKeep)) {
		return nil
	}
	n, err := s.guard.Purge(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("purge %v: %w", s, err)
	}
	fmt.Fprintf(log, "purged %d expired records\n", n)
	return nil
}
