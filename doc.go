// Package onlyonce makes asking again safe: a command that is sent many times
// runs once, and everyone who asks gets the same answer.
//
//	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
//	req := onlyonce.Request{
//		ID:          onlyonce.ID{Tenant: "acme", Operation: "charge", Key: key},
//		Fingerprint: onlyonce.Fingerprint(body),
//	}
//	answer, err := onlyonce.Do(ctx, guard, req, func(ctx context.Context) (Receipt, error) {
//		return charge(ctx, body)
//	})
//
// A command is named by its [ID]. A repeat with the same ID gets the stored
// answer; one whose [Fingerprint] differs is refused with [ErrMismatch]; one
// that comes while the first still runs waits, as [Config] says, or gets an
// [InFlightError].
//
// # The promise
//
// Inside one database transaction ([DoTx]) a command takes effect exactly once.
// Outside it ([Do]): at most one attempt holds the lease at a time; a finished
// command is never run again while its record is kept; an attempt whose outcome
// nobody knows is treated as the caller decided: run again, held for a person
// ([Config].HoldUnknown), or looked at by a callback ([Config].Reconcile). What a
// record survives, and what it does not, is in the package comment of the store
// that keeps it.
//
// # States
//
//	absent ── claim ──► processing ── settle ──► completed  replayed until Keep ends
//	   ▲                  │     │                failed     the next claim runs it again, or the failure is replayed
//	   └── release ───────┘     └─ lease lapsed, unknown    the next claim takes over, or it is held
//
// Every later attempt has a higher fence, also after the record was purged.
package onlyonce
