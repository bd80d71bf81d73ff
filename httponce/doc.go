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
// is recorded at its end: if the process dies in between, the outcome is
// unknown.
package httponce
