// Package fiber2once makes the handlers of fiber v2 idempotent. A repeat of a request gets the
// first response, and its handler does not run again. For fiber v3, see fiberonce.
//
//	once := fiber2once.Middleware(guard, httponce.Config{
//		Tenant: func(r *http.Request) string { return fiber2once.Context(r).Locals("account").(string) },
//	})
//	app := fiber.New()
//	app.Use(recover.New(), authenticate) // sets "account"
//	app.Post("/accounts/:id/charges", once, charge)
//
// The settings and the rules are those of [github.com/onlyonce-go/onlyonce/httponce], except
// for what fiber decides:
//
//   - The operation is the method and the route, such as "POST /accounts/:id/charges". Pass the
//     middleware to the route: behind Use or in a group, it runs before fiber looks for the
//     route, and the first request with a key panics, unless Config.Operation names the
//     operation.
//   - Handlers that authenticate, authorize or log belong before the middleware, and run for a
//     repeat, too. What handlers after it write is part of the response that is recorded.
//   - If a handler returns an error, the ErrorHandler of the app writes the response, which is
//     recorded. With a status of 500 or more, the command has failed, and a repeat runs it again.
//     The middleware then returns nil, like fiber's logger: the error has become the response.
//   - A panic leaves the outcome unknown. The recover middleware belongs before this one. After
//     it in the same route, the first request with a key panics.
//   - timeout.New, after the middleware or before it, panics in the same way, because it responds
//     while its handler is still running. fasthttp.TimeoutHandler may be around app.Handler().
//   - A handler of net/http after the middleware panics in the same way: the request that it gets from
//     fiber does not lead to the attempt, so that httponce.Unknown and the like would do nothing. A
//     fiber.Handler may call adaptor.HTTPHandler(h)(c).
//   - A response is sent as a whole: a stream is first read to its end.
//   - With fiber.Config.StreamRequestBody, a request with a key, and every request to WrapTx, must
//     have a Content-Length, or it is rejected with 411: without one, fiber can't tell a complete
//     body from one whose client has gone.
//
// Inside the handler, c.UserContext() is the context of the attempt: see onlyonce.Current.
//
// Strings from a fiber.Ctx are valid until the handler returns. Those that a function of the
// httponce.Config returns are copied.
package fiber2once
