// Package conform tests an HTTP API's idempotency from the outside. It sends
// real requests under new random keys and reports for every promise whether it
// holds, with the requests and responses behind each verdict.
//
//	report, err := conform.Run(ctx, conform.Target{
//		URL:   "http://127.0.0.1:8080/orders",
//		Body:  []byte(`{"amount": 2, "note": "a test"}`),
//		Fresh: "/note",
//	}, conform.Config{})
//
// The API may be written in any language. The reference is
// draft-ietf-httpapi-idempotency-key-header-07, an Internet-Draft that expired
// in April 2026 and is not a standard. Where the draft leaves a behavior open,
// a row is "not supported" rather than failed, unless the API loses or
// duplicates a command or shows one caller's response to another.
//
// The requests take effect, so use a system that may be written to.
package conform
