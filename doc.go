// Package onlyonce makes retries safe: a command that is sent many times runs
// once, and every caller gets the same response.
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
// An [ID] identifies a command. A repeat with the same ID gets the stored
// response. A repeat whose [Fingerprint] differs is rejected with [ErrMismatch].
// A repeat that arrives while the first request is still running waits if
// [Config] allows it, or else gets an [InFlightError].
//
// # The promise
//
// Inside one database transaction ([DoTx]), a command takes effect exactly
// once. Outside a transaction ([Do]), at most one attempt holds the lease at a
// time, and a completed command never runs again while its record is kept. If
// the outcome of an attempt is unknown, the configuration decides what happens:
// the command runs again, waits for a person ([Config].HoldUnknown), or is
// looked up by a callback ([Config].Reconcile). The package comment of each
// store says which failures its records survive.
//
// # States
//
//	absent ── claim ──► processing ── settle ──► completed  replayed until Keep ends
//	   ▲                  │     │                failed     the next claim runs it again, or the failure is replayed
//	   └── release ───────┘     └─ lease lapsed, unknown    the next claim takes over, or a person decides
//
// With [Config].Remember, what has completed is remembered by its ID alone once Keep has ended, and
// a repeat is rejected with [ErrKeyExpired].
//
// Every later attempt has a higher fence, even after the record was purged.
package onlyonce
