// Package proxy puts httponce before a server in any language, which then needs
// no change: requests with an idempotency key run once and are replayed, all
// others go through untouched and streaming.
//
//	orders := &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:3000"}}
//	p := proxy.New([]proxy.Route{
//		{Method: "POST", Pattern: "/v1/orders", Upstream: orders, Guard: guard, Idempotency: httponce.Config{Tenant: account}},
//		{Pattern: "/", Upstream: orders},
//	}, proxy.Config{})
//	l, err := net.Listen("tcp", "127.0.0.1:8080")
//	…
//	err = proxy.Server(p).Serve(proxy.Listen(l, nil))
//
// # What becomes of a keyed request
//
//	rejected before a byte was sent to the upstream    released: a repeat runs; the client gets 503, retryable
//	no answer, a broken or malformed one, 502, 504    unknown: the Guard's policy decides what a repeat does
//	another answer of 500 or more                     failed: a repeat runs
//	any other answer                                  recorded and replayed, as httponce.Config says
//
// The upstream gets the key in one form, however the client wrote it: pay-1 for
// pay-1, "pay-1" and pay-1;x=1, and a quoted string (RFC 9651) if the key needs
// quotes or Idempotency.KeyFormat takes nothing else. It also gets Idempotency-Attempt (the number of the attempt; the first is 1) and Idempotency-Fence (a number higher
// than that of every earlier attempt: a row that remembers the highest can
// reject what a lost attempt still writes). What a client sends under these two
// names never reaches it. A keyed request is never sent twice by one attempt.
//
// It is sent by HTTP/1.1, with a length; interim answers (103) and the request's
// trailers are not passed on, and its answer leaves once all of it has come, but
// for a stream of events and what is longer than httponce.Config.MaxResponse.
//
// # What a client can't do
//
// The upstream is the route's, whatever the request says. Redirects are the
// client's to follow. Headers of one connection end here, and a request whose
// Connection header names one that matters is rejected with 400. Forwarded and
// X-Forwarded-* are the proxy's own, and other headers that say who the client is
// are dropped unless Config.TrustForwarded holds.
//
// The path that selects the route is the path that is sent, in normal form (RFC
// 3986, section 6.2.2). A path that has none, or that common servers take for that
// of another route, is rejected with 400. In another case, or with a slash at its
// end, it belongs to the route with a guard that it resembles. Headers such as
// X-HTTP-Method-Override are dropped, unless Route.KeepOverrides says otherwise,
// and what is dropped is dropped in every spelling that a CGI-like server takes for
// the same. Listen rejects what may be read in two ways (RFC 9112); serve through
// it.
//
// gRPC goes through whether it has a key or not, unless a key is required, and is
// never protected. It is a POST over HTTP/2 whose content type is application/grpc,
// alone or with a + or ; behind it, and is sent by HTTP/2 (RFC 9113) only, in clear
// text if the upstream's URL is http.
package proxy
