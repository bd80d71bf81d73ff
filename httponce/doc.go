// Package httponce gives handlers of net/http the Idempotency-Key header: a
// request that is sent again gets the first one's answer, and its handler does
// not run again.
//
//	mux.Handle("POST /v1/orders", httponce.Wrap(guard, createOrder, httponce.Config{
//		Tenant: func(r *http.Request) string { return accountOf(r) },
//	}))
//
// Put the wrapper inside what authenticates and authorises: a repeat passes
// through that again before it gets the stored answer, so that a permission
// taken away also ends the replays.
//
// A keyed command is not cancelled when its client goes away: it finishes, and
// the client's retry gets its answer. What the handler answers is recorded
// before its first byte leaves. Only an answer that streams, because its
// handler flushes it or it grows past Config.MaxAnswer, leaves as it comes and
// is recorded at its end, before the last byte of a body with a Content-Length:
// if the process dies in between, the outcome is unknown. One without a body
// does not stream. A handler whose connection is hijacked is not recorded.
//
// A replay is the first answer's status, header and body, byte for byte, but
// for headers that were meant for one client or one moment (see
// Config.ReplayHeader) and for what handlers around the wrapper set, which they
// set again. The layer adds
//
//	Idempotency-Replayed: true          to a replay
//	Idempotency-Expires: an HTTP date   to a recorded answer: when its protection ends
//	Idempotency-Replay: omitted         to a replay whose body was not stored
//	Idempotency-Protected: no           to an answer given without the store
//
// An answer that streams leaves before it is recorded, and so has no
// Idempotency-Expires. Refusals are Problems: RFC 9457 documents, or what the
// application makes of them.
//
// A request in flight is answered with 409 and a Retry-After of what is left of
// the running attempt's lease, at least one second and at most five, since most
// commands end long before their lease does.
//
// What a request uses up is counted before it is taken: its tenant's requests, the
// memory of its body and answer, and what is stored of it have limits with
// defaults (see Config.MaxInFlight, MaxMemory and MaxStored). Beyond them it is
// refused with 429 or 503 and a Retry-After, and its handler does not run.
//
// Transport is the other half: it gives a client's requests their keys, and
// sends them again until there is an answer.
package httponce
