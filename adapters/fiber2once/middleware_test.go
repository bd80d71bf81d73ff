package fiber2once_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	recoverer "github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/gofiber/fiber/v2/middleware/timeout"
	"github.com/valyala/fasthttp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/fiber2once"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

var quiet = fiber.Config{DisableStartupMessage: true}

func accountOf(r *http.Request) string {
	return fiber2once.Context(r).Locals("account").(string)
}

type charge struct {
	Note string `json:"note"`
}

// perform binds the body and does what the suite asks for.
func perform(app adaptertest.App, c *fiber.Ctx) (string, error) {
	var first, second charge
	if c.Method() == fiber.MethodPost {
		if err := errors.Join(c.BodyParser(&first), c.BodyParser(&second)); err != nil || first != second {
			return "", fiber.NewError(fiber.StatusBadRequest, fmt.Sprint(err))
		}
	}
	respond := func(status int, body string) {
		c.Set("Content-Type", "application/json")
		_ = c.Status(status).SendString(body)
	}
	note := strings.Clone(first.Note)
	act := app.Handle(adaptertest.Call{Note: note, Context: c.UserContext(), Respond: respond})
	switch {
	case act.Panic != nil:
		panic(act.Panic)
	case act.Err != nil:
		return note, fiber.NewError(fiber.StatusInternalServerError, act.Err.Error())
	case act.Chunks != nil:
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			for _, chunk := range act.Chunks {
				_, _ = w.WriteString(chunk)
				_ = w.Flush()
			}
		})
		return note, nil
	}
	respond(act.Status, act.Body)
	return note, nil
}

func newApp(app adaptertest.App) *fiber.App {
	a := fiber.New(quiet)
	app.Config.Tenant = accountOf
	if app.Recovery == adaptertest.Outside {
		a.Use(recoverer.New())
	}
	a.Use(func(c *fiber.Ctx) error {
		c.Locals("account", c.Get("X-Account"))
		c.Set("X-Outer", app.Outer())
		_ = c.Body() // of fiber, which every handler may read
		return c.Next()
	})
	if app.Tx != nil {
		a.Post("/accounts/:id/charges", fiber2once.WrapTx(app.Tx, func(c *fiber.Ctx, tx adaptertest.Tx) error {
			note, err := perform(app, c)
			tx["order"] = note
			return err
		}, app.Config))
		return a
	}
	once := fiber2once.Middleware(app.Guard, app.Config)
	inner := func(c *fiber.Ctx) error {
		c.Set("X-Inner", app.Inner())
		return c.Next()
	}
	handle := func(c *fiber.Ctx) error {
		_, err := perform(app, c)
		return err
	}
	a.Post("/accounts/:id/charges", once, inner, handle)
	a.Get("/accounts/:id/charges", once, inner, handle)
	return a
}

// listen serves an app until the end of the test.
func listen(t *testing.T, a *fiber.App) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Listener(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := errors.Join(a.Shutdown(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

func TestMiddleware_KeepsTheRulesOfAdapters(t *testing.T) {
	adaptertest.Run(t, adaptertest.Adapter{
		Serve: func(t *testing.T, app adaptertest.App) string { return listen(t, newApp(app)) },
		Route: "/accounts/:id/charges", NoPanic: true, NoRecoveryInside: true, NoStream: true, NoRequest: true,
	})
}

// serve serves a keyed POST, and returns fiber's response.
func serve(a *fiber.App, path string) *fasthttp.Response {
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod("POST")
	ctx.Request.SetRequestURI(path)
	ctx.Request.Header.Set("Idempotency-Key", "k")
	ctx.Request.SetBodyString("a")
	a.Handler()(&ctx)
	return &ctx.Response
}

func wantReply(t *testing.T, w *fasthttp.Response, status int, body string, replayed bool) {
	t.Helper()
	if w.StatusCode() != status || string(w.Body()) != body || (string(w.Header.Peek("Idempotency-Replayed")) == "true") != replayed {
		t.Errorf("got %s, want %d %q, replayed %v", w, status, body, replayed)
	}
}

func newOnce(cfg httponce.Config) (*fiber.App, fiber.Handler, *memstore.Store) {
	store := memstore.New(memstore.Config{})
	cfg.Tenant = httponce.SingleTenant
	return fiber.New(quiet), fiber2once.Middleware(onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), cfg), store
}

func wantState(t *testing.T, store *memstore.Store, operation string, want onlyonce.State) {
	t.Helper()
	rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: operation, Key: "k"})
	if err != nil || rec.State != want {
		t.Errorf("the record is %+v, %v, want %s", rec, err, want)
	}
}

func wantPanic(t *testing.T, part string, f func()) {
	t.Helper()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, part) {
			t.Errorf("the panic is %s", text)
		}
	}()
	f()
}

func created(c *fiber.Ctx) error { return c.Status(fiber.StatusCreated).SendString("charged") }

func TestMiddleware_BehindUseOrInAGroupItPanicsAtTheFirstRequest(t *testing.T) {
	for name, wire := range map[string]func(a *fiber.App, once fiber.Handler){
		"Use":   func(a *fiber.App, once fiber.Handler) { a.Use(once).Post("/v1/charges", created) },
		"Group": func(a *fiber.App, once fiber.Handler) { a.Group("/v1", once).Post("/charges", created) },
		"Use of the same path": func(a *fiber.App, once fiber.Handler) {
			a.Use("/v1/charges", once).Post("/v1/charges", created)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, once, _ := newOnce(httponce.Config{})
			wire(a, once)
			for range 2 {
				wantPanic(t, "app.Post(path, once, handler)", func() { serve(a, "/v1/charges") })
			}
			named, once, store := newOnce(httponce.Config{Operation: func(*http.Request) string { return "charge" }})
			wire(named, once)
			wantReply(t, serve(named, "/v1/charges"), 201, "charged", false)
			wantReply(t, serve(named, "/v1/charges"), 201, "charged", true)
			wantState(t, store, "charge", onlyonce.StateCompleted)
		})
	}
}

func TestMiddleware_ARecoveryAfterItPanicsAtTheFirstRequest(t *testing.T) {
	a, once, _ := newOnce(httponce.Config{})
	a.Post("/inside", once, recoverer.New(), created)
	a.Post("/outside", recoverer.New(), once, created)
	wantPanic(t, "app.Use(recover.New()) before", func() { serve(a, "/inside") })
	wantReply(t, serve(a, "/outside"), 201, "charged", false)
}

func TestMiddleware_AnErrorOfTheClientIsReplayed(t *testing.T) {
	a, once, store := newOnce(httponce.Config{})
	a.Post("/charges", func(c *fiber.Ctx) error {
		if err := c.Next(); err != nil {
			t.Errorf("the handler before got %v", err)
		}
		return nil
	}, once, func(*fiber.Ctx) error { return fiber.NewError(fiber.StatusConflict, "sold out") })
	for repeat := range 2 {
		wantReply(t, serve(a, "/charges"), 409, "sold out", repeat > 0)
	}
	wantState(t, store, "POST /charges", onlyonce.StateCompleted)
}

func TestMiddleware_AnErrorHandlerThatFailsIsAFailure(t *testing.T) {
	store := memstore.New(memstore.Config{})
	a := fiber.New(fiber.Config{DisableStartupMessage: true, ErrorHandler: func(*fiber.Ctx, error) error { return errors.New("the template is missing") }})
	a.Post("/charges", fiber2once.Middleware(onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), httponce.Config{Tenant: httponce.SingleTenant}),
		func(*fiber.Ctx) error { return fiber.ErrConflict })
	wantReply(t, serve(a, "/charges"), 500, "Internal Server Error", false)
	wantState(t, store, "POST /charges", onlyonce.StateFailed)
}

func TestMiddleware_AnErrorOfWhichNobodyWritesAResponseIsAFailure(t *testing.T) {
	store := memstore.New(memstore.Config{})
	a := fiber.New(fiber.Config{DisableStartupMessage: true, ErrorHandler: func(*fiber.Ctx, error) error { return nil }})
	a.Post("/charges", fiber2once.Middleware(onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), httponce.Config{Tenant: httponce.SingleTenant}),
		func(*fiber.Ctx) error { return errors.New("the bank is closed") })
	wantReply(t, serve(a, "/charges"), 500, "", false)
	wantState(t, store, "POST /charges", onlyonce.StateFailed)
}

func TestMiddleware_AStreamThatBreaksOffLeavesTheOutcomeUnknown(t *testing.T) {
	a, once, store := newOnce(httponce.Config{})
	a.Post("/charges", once, func(c *fiber.Ctx) error {
		return c.SendStream(io.MultiReader(strings.NewReader("a part"), broken{}))
	})
	serve(a, "/charges")
	wantState(t, store, "POST /charges", onlyonce.StateUnknown)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("cut off") }

func TestMiddleware_AHandlerDecidesAboutItsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		decide func(c *fiber.Ctx)
		state  onlyonce.State
	}{
		"DontStore":     {fiber2once.DontStore, ""},
		"DontStoreBody": {fiber2once.DontStoreBody, onlyonce.StateCompleted},
		"Unknown":       {func(c *fiber.Ctx) { fiber2once.Unknown(c, errors.New("no answer")) }, onlyonce.StateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			a, once, store := newOnce(httponce.Config{})
			a.Post("/charges", once, func(ctx *fiber.Ctx) error {
				c.decide(ctx)
				return created(ctx)
			})
			wantReply(t, serve(a, "/charges"), 201, "charged", false)
			rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /charges", Key: "k"})
			if rec.State != c.state || (err == nil) != (c.state != "") || len(rec.Result.Body) > 0 {
				t.Errorf("the record is %+v, %v", rec, err)
			}
		})
	}
	a := fiber.New(quiet)
	a.Post("/charges", func(c *fiber.Ctx) error {
		fiber2once.Unknown(c, nil) // does nothing without the middleware
		return created(c)
	})
	wantReply(t, serve(a, "/charges"), 201, "charged", false)
}

// fiber uses the memory of a request again for the next one.
func TestMiddleware_ARecordKeepsNoMemoryOfFiber(t *testing.T) {
	store := memstore.New(memstore.Config{})
	a := fiber.New(quiet)
	once := fiber2once.Middleware(onlyonce.New(store, onlyonce.Config{}), httponce.Config{
		Tenant:    func(r *http.Request) string { return fiber2once.Context(r).Get("X-Account") },
		Operation: func(r *http.Request) string { return fiber2once.Context(r).Path() },
	})
	a.Post("/charges/:id", once, func(c *fiber.Ctx) error {
		c.Set("X-Id", c.Params("id"))
		return c.SendString(c.Params("id"))
	})
	var ctx fasthttp.RequestCtx
	send := func(account, id, key string) {
		ctx.Request.Reset()
		ctx.Response.Reset()
		ctx.Request.Header.SetMethod("POST")
		ctx.Request.SetRequestURI("/charges/" + id)
		ctx.Request.Header.Set("X-Account", account)
		ctx.Request.Header.Set("Idempotency-Key", key)
		a.Handler()(&ctx)
	}
	send("alice", "aaaa", "kkkk")
	send("bobby", "bbbb", "qqqq")
	rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "alice", Operation: "/charges/aaaa", Key: "kkkk"})
	if err != nil || string(rec.Result.Body) != "aaaa" || rec.ID.Tenant != "alice" || rec.Result.Header["X-Id"][0] != "aaaa" {
		t.Errorf("the record is %+v, %v", rec, err)
	}
}

func TestContext_PanicsOnARequestOfAnother(t *testing.T) {
	wantPanic(t, "fiber2once: Context: ", func() { fiber2once.Context(&http.Request{}) })
}

func TestMiddleware_TwiceOnARouteRunsItsHandlerOnce(t *testing.T) {
	a, once, _ := newOnce(httponce.Config{})
	a.Post("/charges", once, once, created)
	for repeat := range 3 {
		wantReply(t, serve(a, "/charges"), 201, "charged", repeat > 0)
	}
}

func TestWrapTx_TheResponseOfAnEarlierRunIsDropped(t *testing.T) {
	store := adaptertest.NewStore()
	store.Twice = true
	a, runs := fiber.New(quiet), 0
	a.Post("/orders", fiber2once.WrapTx(onlyonce.NewTx(store, onlyonce.Config{}), func(c *fiber.Ctx, _ adaptertest.Tx) error {
		if runs++; runs == 1 {
			c.Set("X-First", "1")
			return c.Status(fiber.StatusAccepted).SendString("run 1")
		}
		return c.SendString("run " + fmt.Sprint(runs))
	}, httponce.Config{Tenant: httponce.SingleTenant}))
	for repeat := range 2 {
		w := serve(a, "/orders")
		wantReply(t, w, 200, "run 2", repeat > 0)
		if len(w.Header.Peek("X-First")) > 0 {
			t.Errorf("the header is %s", w.Header.String())
		}
	}
}

func TestMiddleware_ATimeoutAfterItPanicsAtTheFirstRequest(t *testing.T) {
	a, once, _ := newOnce(httponce.Config{})
	//lint:ignore SA1019 what is deprecated is still used
	a.Post("/charges", once, timeout.New(created, time.Second))
	wantPanic(t, "timeout.New responds while its handler is still running", func() { serve(a, "/charges") })
	a.Post("/context", once, timeout.NewWithContext(created, time.Second))
	wantReply(t, serve(a, "/context"), 201, "charged", false)
}

func TestMiddleware_AHandlerOfNetHTTPAfterItPanicsAtTheFirstRequest(t *testing.T) {
	a, once, _ := newOnce(httponce.Config{})
	h := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("charged")) }
	a.Post("/adapted", once, adaptor.HTTPHandlerFunc(h))
	a.Post("/outside", adaptor.HTTPMiddleware(func(next http.Handler) http.Handler { return next }), once, created)
	a.Post("/called", once, func(c *fiber.Ctx) error { return adaptor.HTTPHandlerFunc(h)(c) })
	wantPanic(t, "write a fiber.Handler that calls adaptor.HTTPHandler(h)(c)", func() { serve(a, "/adapted") })
	wantReply(t, serve(a, "/outside"), 201, "charged", false)
	wantReply(t, serve(a, "/called"), 200, "charged", false)
}

func TestMiddleware_OnAnotherGoroutineItPanicsBeforeAnythingRuns(t *testing.T) {
	a, once, store := newOnce(httponce.Config{})
	//lint:ignore SA1019 what is deprecated is still used
	a.Post("/charges", timeout.New(func(c *fiber.Ctx) (err error) {
		wantPanic(t, "write fasthttp.TimeoutHandler(app.Handler(), …) instead", func() { err = once(c) })
		return err
	}, time.Minute), func(*fiber.Ctx) error { t.Error("it ran"); return nil })
	serve(a, "/charges")
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestMiddleware_ATimeoutHandlerAroundTheAppIsAccepted(t *testing.T) {
	a, once, store := newOnce(httponce.Config{})
	a.Post("/charges", once, created)
	var ctx fasthttp.RequestCtx
	ctx.Init(&fasthttp.Request{}, nil, nil)
	ctx.Request.Header.SetMethod("POST")
	ctx.Request.SetRequestURI("/charges")
	ctx.Request.Header.Set("Idempotency-Key", "k")
	fasthttp.TimeoutHandler(a.Handler(), time.Minute, "")(&ctx)
	if ctx.Response.StatusCode() != fiber.StatusCreated {
		t.Errorf("got %s", &ctx.Response)
	}
	wantState(t, store, "POST /charges", onlyonce.StateCompleted)
}
