// Package proxy runs httponce in front of a server in any language, which needs
// no change: requests with an idempotency key run once and are replayed. All
// other requests pass through unchanged and streaming.
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
// # The outcome of a keyed request
//
//	nothing was sent to the upstream                     released: a repeat runs; the client gets 503, retryable
//	it said, over HTTP/2, that it processed nothing      released: a repeat runs; the client gets 503, retryable
//	no response, a broken or malformed one, 499, 502,    unknown: the Guard's policy decides what a repeat does
//	504, or one of Idempotency.UnknownStatus
//	another response of 500 or more                      failed: a repeat runs
//	any other response                                   recorded and replayed as httponce.Config says
//
// A keyed request is never sent twice by one attempt. Of the other requests, only
// those with a safe method, such as GET, may be, and those without a body that the
// upstream says, over HTTP/2, that it has not processed. The upstream gets the key in
// one form, however the client wrote it: pay-1 for pay-1, "pay-1" and pay-1;x=1,
// and a quoted string (RFC 9651) if the key needs quotes or Idempotency.KeyFormat
// accepts only strings. It also gets Idempotency-Attempt, the number of the
// attempt, which begins at 1, and Idempotency-Fence, a number that is higher than
// that of every earlier attempt: a row that stores the highest one can reject the
// writes of a lost attempt. Headers and trailers that a client sends under these
// two names are dropped.
//
// A keyed request is sent over HTTP/1.1 with a Content-Length, or over HTTP/2 if
// Upstream.HTTP2 is set or the request is a gRPC call. Interim responses (103) and the
// request's trailers are passed on over HTTP/2, and dropped over HTTP/1.1. Trailers under
// the names of headers that the proxy sets, drops or protects are always dropped. The
// response is held back until all of it has been received, unless it is an event stream
// or longer than httponce.Config.MaxResponse.
//
// # What a client can't do
//
// The route selects the upstream; nothing in the request can change it. Redirects
// are passed to the client. Hop-by-hop headers are not forwarded, and a request
// whose Connection header names a protected header is rejected with 400. The proxy
// sets Forwarded and X-Forwarded-* itself, and drops other headers that identify
// the client unless Config.TrustForwarded accepts the request.
//
// The path that selects the route is the path that is sent, in normal form (RFC
// 3986, section 6.2.2). A path without a normal form, or one that common servers
// read as the path of another route, is rejected with 400. A path that differs from
// a guarded route only in case, or in a slash at its end, belongs to that route.
// Headers such as X-HTTP-Method-Override are dropped unless Route.KeepOverrides is
// set. A header that is dropped is dropped in every spelling that a CGI-like server
// reads as the same name. Listen rejects requests that can be read in two ways (RFC
// 9112), so serve through it.
//
// gRPC calls pass through with or without a key, and are not protected, unless a key
// is required. A gRPC call is a POST over HTTP/2 whose content type is
// application/grpc, alone or followed by + or ;. It is sent over HTTP/2 (RFC 9113)
// only, in clear text if the scheme of the upstream's URL is http.
package proxy
