// Package conform finds out, from outside, which promises of idempotency an
// HTTP API keeps: it sends real requests to it, each under new random keys, and
// says of every promise whether it holds, with the request and the answer that
// show it.
//
//	report, err := conform.Run(ctx, conform.Target{
//		URL:   "http://127.0.0.1:8080/orders",
//		Body:  []byte(`{"amount": 2, "note": "a test"}`),
//		Fresh: "/note",
//	}, conform.Config{})
//
// The API may be written in any language. What it is measured by is
// draft-ietf-httpapi-idempotency-key-header-07 where that says something: an
// Internet-Draft, which expired in April 2026 and is no standard. What the draft
// leaves open can fail no row, but for what loses or doubles a command, or
// shows one caller's answer to another; otherwise it is "not supported".
//
// The requests take effect: point it at a system that may be written to.
package conform
