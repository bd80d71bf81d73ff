// Package echoonce makes the handlers of echo v4 idempotent. A repeat of a request gets the
// first response, and its handler does not run again. For echo v5, see echo5once.
//
//	once := echoonce.Middleware(guard, httponce.Config{
//		Tenant: func(r *http.Request) string { return echoonce.Context(r).Get("account").(string) },
//	})
//	e := echo.New()
//	e.Use(middleware.Recover(), authenticate) // sets "account"
//	e.POST("/accounts/:id/charges", charge, once)
//
// The settings and the rules are those of [github.com/onlyonce-go/onlyonce/httponce], except
// for what echo decides:
//
//   - The operation is the method and the route, such as "POST /accounts/:id/charges".
//   - Middleware that authenticates, authorizes or logs belongs outside, and runs for a repeat,
//     too. What middleware inside writes is part of the response that is recorded.
//   - If the handler returns an error, echo's error handler (Echo.HTTPErrorHandler) writes the
//     response, which is recorded. With a status of 500 or more, the command has failed, and a
//     repeat runs it again. The middleware returns the error, for the middleware outside, and
//     drops what is written to the response from then on.
//   - A panic leaves the outcome unknown. If middleware.Recover is inside, that is so unless it
//     has DisableErrorHandler, with which a panic is like any error, or the handler has written
//     a response before: it is recorded. So Recover belongs outside.
//
// The functions of httponce that take the handler's request (DontStore, Unknown, InTx and the
// like) take c.Request(). The attempt is in its context: onlyonce.Current(c.Request().Context()).
//
// A handler must not use the echo.Context after it has returned.
package echoonce
