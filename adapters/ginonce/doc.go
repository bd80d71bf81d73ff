// Package ginonce makes gin's handlers idempotent. A repeat of a request gets the first
// response, and the handlers after the middleware do not run again.
//
//	once := ginonce.Middleware(guard, httponce.Config{
//		Tenant: func(r *http.Request) string { return ginonce.Context(r).GetString("account") },
//	})
//	r := gin.Default()
//	r.Use(authenticate) // sets "account"
//	r.POST("/accounts/:id/charges", once, charge)
//
// The settings and the rules are those of [github.com/onlyonce-go/onlyonce/httponce], except
// for what gin decides:
//
//   - The operation is the method and the route, such as "POST /accounts/:id/charges".
//   - Handlers that authenticate, authorize or log belong before the middleware, and run for a
//     repeat, too. What handlers after it write is part of the response that is recorded.
//   - A panic leaves the outcome unknown, whether gin.Recovery is before the middleware or
//     after it. After it, one with the error of a broken connection does not if the handler has
//     written a response, because gin.Recovery then writes no status: that response is recorded.
//   - A middleware that calls Next on a goroutine of its own, as one that enforces a timeout may,
//     belongs nowhere: gin gives the context of the handler to another request. Before the
//     middleware, it causes a panic. Use http.TimeoutHandler around the engine.
//   - If a handler reports an error with c.Error and writes no response, the command has
//     failed, and a repeat runs it again. A handler before the middleware can write the
//     response, as it can without ginonce. It is not part of the record.
//   - Context.Stream does not end when the client has gone, as a command does not. Once the
//     response has become too long to be stored, it does.
//
// The functions of httponce that take the handler's request (DontStore, Unknown, InTx and the
// like) take c.Request. The attempt is in its context: onlyonce.Current(c.Request.Context()).
// Inside InTx, write a body, or call c.Writer.WriteHeaderNow: gin holds a status back
// that c.Status has set.
//
// A handler must not use the gin.Context after it has returned. Like every context of gin, a
// goroutine gets c.Copy().
package ginonce
