package fiberonce

import (
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// Middleware returns a fiber.Handler that runs the handlers after it once for each idempotency
// key. It panics on a nil Guard and on an invalid Config.
func Middleware(g *onlyonce.Guard, cfg httponce.Config) fiber.Handler {
	return serve(cfg, func(cfg httponce.Config) http.Handler {
		return httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			in := of(r)
			if _ = in.enter(w, r, in.c.Next); in.cut != nil {
				httponce.Unknown(r, in.cut)
			}
		}), cfg)
	})
}

// WrapTx returns a handler that runs h once for each idempotency key, in a transaction that
// commits the rows of h and its response together: see httponce.WrapTx. h may run more than
// once if the database requires a retry. What it has set in the Locals stays.
//
//	app.Post("/orders", fiberonce.WrapTx(guard, func(c fiber.Ctx, tx *sql.Tx) error {…}, cfg))
func WrapTx[TX any](g *onlyonce.TxGuard[TX], h func(fiber.Ctx, TX) error, cfg httponce.Config) fiber.Handler {
	if h == nil {
		panic("fiberonce: WrapTx: the handler is nil")
	}
	return serve(cfg, func(cfg httponce.Config) http.Handler {
		return httponce.WrapTx(g, func(w http.ResponseWriter, r *http.Request, tx TX) error {
			in := of(r)
			err := in.enter(w, r, func() error { return h(in.c, tx) })
			if in.cut != nil { // the rows are rolled back, and the client gets another response
				err, in.cut = errors.Join(in.cut, err), nil
			}
			return err
		}, cfg)
	})
}

// Context returns the context of fiber in which the request is served. It is for the functions of
// a httponce.Config, and valid until they return. It panics if r is not the request that such
// a function got.
func Context(r *http.Request) fiber.Ctx { return of(r).c }

// DontStore is httponce.DontStore for a handler of fiber: a repeat of the request runs again.
func DontStore(c fiber.Ctx) { decide(c, httponce.DontStore) }

// DontStoreBody is httponce.DontStoreBody for a handler of fiber: a repeat gets no body.
func DontStoreBody(c fiber.Ctx) { decide(c, httponce.DontStoreBody) }

// Unknown is httponce.Unknown for a handler of fiber: it is unknown whether the command took
// effect.
func Unknown(c fiber.Ctx, cause error) {
	decide(c, func(r *http.Request) { httponce.Unknown(r, cause) })
}

func decide(c fiber.Ctx, decision func(*http.Request)) {
	if in, ok := c.Context().Value(entryKey{}).(*entry); ok && in.handed != nil {
		decision(in.handed)
	}
}
