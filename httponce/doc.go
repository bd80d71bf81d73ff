// Package httponce adds support for the Idempotency-Key header to net/http
// handlers: a repeated request gets the first response, and its handler does
// not run again.
//
//	mux.Handle("POST /v1/orders", httponce.Wrap(guard, createOrder, httponce.Config{
//		Tenant: func(r *http.Request) string { return accountOf(r) },
//	}))
//
// Put the middleware inside the handlers that authenticate and authorize
// callers. A repeat then passes through them again before it gets the stored
// response, so revoking a permission also ends the replays.
//
// A keyed command is not canceled when its client disconnects: it finishes, and
// the client's retry gets its response. The handler's response is recorded
// before its first byte is sent, with two exceptions.
//
// If the store can't be reached when the handler of Wrap returns, and stays so until the lease
// would end, the response is sent all the same, without Idempotency-Expires. The outcome is then
// unknown to the store, so that a repeat may run again and get another response: see
// onlyonce.Config.HoldUnknown. WrapTx and InTx send no success that was not committed.
//
// The other exception is a streaming response. A response streams if its handler
// flushes it or if it grows past Config.MaxResponse; a response without a body
// does not stream. It is sent as it is written, and recorded at its end, before
// the last byte of a body with a Content-Length. If the process dies in
// between, the outcome is unknown. If the attempt has lost its lease meanwhile,
// the response breaks off before its end. If the handler hijacks the connection,
// its response is not recorded.
//
// A replay has the status, header and body of the first response, byte for
// byte. Headers that were meant for one client or one point in time are left
// out (see Config.ReplayHeader), and handlers around the middleware set their
// own headers again. The middleware adds
//
//	Idempotency-Replayed: true          to a replay
//	Idempotency-Expires: an HTTP date   to a recorded response: when its protection ends
//	Idempotency-Replay: omitted         to a replay whose body was not stored
//	Idempotency-Protected: no           to a response sent without using the store
//
// If the body was not stored, and a client could take its absence for an empty message, as in gRPC,
// Connect and Protocol Buffers, a repeat is rejected with CodeResponseOmitted instead.
//
// A streaming response is sent before it is recorded, so it has no
// Idempotency-Expires. Rejections are Problems: RFC 9457 documents, or whatever
// the application turns them into.
//
// While the first request is in flight, a repeat is rejected with 409. Its
// Retry-After is the time left of the running attempt's lease, but at least one
// second and at most five, since most commands end long before their lease
// does.
//
// Limits with defaults apply to the number of a tenant's requests, the memory
// of bodies and responses, and the size of stored records (see
// Config.MaxInFlight, MaxMemory and MaxStored). Each resource is counted before
// it is used. A request beyond a limit is rejected with 429 or 503 and a
// Retry-After, and its handler does not run.
//
// # Memory
//
// A request's body is read into memory that the middleware uses again for another
// request. Until its response has been sent, the middleware owns that memory, and lends it:
//
//   - to Config.Fingerprint, Config.KeyInBody and the other functions of a Config that get
//     the body: until they return
//   - to the handler, as r.Body, which copies: until the handler returns. A Read after
//     that, such as in a goroutine that the handler has started, gets
//     http.ErrBodyReadAfterClose. So it does after a panic, and after a lost lease or a
//     client that has gone, none of which ends the handler.
//
// Values that live longer are copied: the fingerprint of an Attempt and of an Event, and
// the summary. The body of a response is never used again, because the Attempt, its Record
// and an Observer may keep it. Memory of more than 64 KiB, and that of a body that is
// dropped early to make room, is left to the garbage collector.
//
// # The client
//
// Transport is the client side: it adds keys to a client's requests and retries
// them until there is a response.
package httponce
