package cryptstore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// WrapTx is Cipher.Wrap for a store with transactions, which the result has, too.
func WrapTx[TX any](c *Cipher, store onlyonce.TxStore[TX]) onlyonce.TxStore[TX] {
	if c == nil || store == nil {
		panic("cryptstore: WrapTx got no Cipher or no store: pass what New returns, and what sqlstore.Open or pgxstore.Open returns")
	}
	s := &sealedTx[TX]{sealed: &sealed{cipher: c, store: store}, store: store}
	p, bits := s.powers()
	return withPowersTx(onlyonce.TxStore[TX](s), &p, bits)
}

// A sealedTx is a store with transactions whose records are encrypted.
type sealedTx[TX any] struct {
	*sealed
	store onlyonce.TxStore[TX]
}

// RunTx claims, runs and settles in one transaction. Like Claim, it takes over a record only
// once it has decrypted it.
func (s *sealedTx[TX]) RunTx(ctx context.Context, c onlyonce.Claim, fn func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	const doing = "run in a transaction"
	key, next, err := s.begin(ctx, doing, c)
	if err != nil {
		return onlyonce.Record{}, err
	}
	var dropped map[string][]byte
	for range maxTakes {
		var last *txRun
		stored, err := s.store.RunTx(ctx, next, func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
			o, err := s.cipher.openTaken(ctx, r, dropped)
			if err != nil {
				return onlyonce.Settlement{}, unavailable(doing, err)
			}
			st, err := fn(ctx, tx, o.Record)
			last = &txRun{o, st}
			return s.cipher.sealSettlement(key, c.ID, st, o.damaged), err
		})
		switch {
		case last != nil && stored.Owner == c.Owner:
			return last.record(stored), err
		case err != nil:
			return onlyonce.Record{}, err
		}
		o, err := s.cipher.openRecord(ctx, stored)
		if err != nil {
			return onlyonce.Record{}, unavailable(doing, err)
		}
		again := false
		if next, again, err = s.prepareTakeover(ctx, key, c, stored, &o); !again || err != nil {
			return o.Record, err
		}
		dropped = o.dropped(stored)
	}
	return onlyonce.Record{}, unavailable(doing, errContended)
}

// A txRun is a run of a function in a transaction: the record that it got, and how it ended.
type txRun struct {
	seen openRecord
	st   onlyonce.Settlement
}

// record returns the record that the run has left. It decrypts nothing, because an error would
// have to mean that nothing was committed.
func (t *txRun) record(stored onlyonce.Record) onlyonce.Record {
	stored.Summary, stored.Steps, stored.Error, stored.Result = t.seen.Summary, t.seen.Steps, t.seen.Error, t.seen.Result
	if settles(stored.State) {
		stored.Result, stored.Error = t.st.Result, t.st.Error
	}
	return stored
}

// SettleTx runs fn and settles an existing claim in one transaction.
func (s *sealedTx[TX]) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(ctx context.Context, tx TX) (onlyonce.Settlement, error)) error {
	key, err := s.cipher.currentOrLast(ctx)
	if err != nil {
		return unavailable("settle in a transaction", err)
	}
	return s.store.SettleTx(ctx, h, func(ctx context.Context, tx TX) (onlyonce.Settlement, error) {
		st, err := fn(ctx, tx)
		return s.cipher.sealSettlement(key, h.ID, st, nil), err
	})
}
