// Package caddyonce is a module for the Caddy web server, http.handlers.onlyonce. A POST or PATCH
// with an Idempotency-Key reaches the handlers after it once, whether they are reverse_proxy or any
// others, and a repeat gets the first response.
//
//	xcaddy build --with github.com/onlyonce-go/onlyonce/adapters/caddyonce
//
//	example.com {
//		basic_auth {
//			…
//		}
//		onlyonce /v1/orders {
//			store postgres://onlyonce:{env.DB_PASSWORD}@db.internal/onlyonce
//			tenant {http.auth.user.id}
//			required
//			unknown hold
//		}
//		reverse_proxy 127.0.0.1:3000
//	}
//
// The directive comes after those that authenticate, compress or change headers, and before
// handle, route, reverse_proxy and those like it. Handlers before it also run for a repeat.
//
// # Outcomes
//
// The status of the response decides the outcome, as it does for httponce.Wrap, with these
// exceptions:
//
//   - If no connection to an upstream could be made, the key is released: a repeat runs as if the
//     first request had not been sent. The same applies if no handler serves the request.
//   - The outcome is unknown if an upstream got the request and did not respond, or only in part.
//     It is also unknown after a status in UnknownStatuses, whether it comes from the upstream or
//     from a handler of Caddy.
//   - The outcome is unknown if an upstream responded with a status below 500 and a handler turned
//     that into 500 or more, for example with handle_response.
//   - The outcome is unknown if a request was not sent again, as below, and another handler than
//     reverse_proxy has responded instead, such as intercept.
//   - A response with neither a Content-Length nor chunks, as most responses over FastCGI, counts as
//     complete when its connection ends, even if the upstream has died in the middle of it.
//
// Each attempt writes a request to an upstream once over HTTP/1. On its own, Go's HTTP client may resend
// a request that has a key and no body, and reverse_proxy may resend one with lb_retry_match or
// handle_response. This is prevented, unless an upstream has responded with a status below 500, except
// 499. Over HTTP/2 and HTTP/3, lb_retry_match may also resend a request whose stream or connection
// ended, and over FastCGI, it is not prevented: leave it out there. If no connection can be made,
// reverse_proxy may still choose another upstream.
//
// An error that a handler returns (caddyhttp.HandlerError) is passed on, so that handle_errors writes
// the response. That response is not recorded: if the error is one that is replayed, such as 404, a
// repeat gets the status and "Idempotency-Replay: omitted". Rejections, such as that of a key that was
// used for a different request, are RFC 9457 problems and do not reach handle_errors.
//
// A response is sent when it is complete and recorded, even if a handler flushes it. Exceptions are
// server-sent events and responses that are longer than MaxResponse, which stream.
//
// # Reloading
//
// Handlers whose settings of the store are the same share one open store, across reloads of the
// configuration. Requests in flight finish under the settings with which they began. A store that no
// configuration uses any more is closed when the last of them has ended.
package caddyonce
