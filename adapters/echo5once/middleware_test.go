package echo5once_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/echo5once"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func accountOf(r *http.Request) string {
	account, _ := echo5once.Context(r).Get("account").(string)
	return account
}

// outer is the middleware outside of echo5once.
func outer(app adaptertest.App) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			r := c.Request()
			c.Set("account", r.Header.Get("X-Account"))
			c.Response().Header().Set("X-Outer", app.Outer())
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			return next(c)
		}
	}
}

type charge struct {
	Note string `json:"note"`
}

// bind binds the body and puts it back.
func bind(c *echo.Context) (bound charge, err error) {
	r := c.Request()
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	err = errors.Join(err, c.Bind(&bound))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return bound, err
}

// perform binds the body and does what the suite asks for.
func perform(app adaptertest.App, c *echo.Context) (string, error) {
	first, err := bind(c)
	second, again := bind(c)
	if err := errors.Join(err, again); err != nil || first != second {
		return "", echo.NewHTTPError(http.StatusBadRequest, fmt.Sprint(err))
	}
	respond := func(status int, body string) { _ = c.JSONBlob(status, []byte(body)) }
	act := app.Handle(adaptertest.Call{Note: first.Note, Context: c.Request().Context(), Request: c.Request(), Respond: respond})
	switch {
	case act.Panic != nil:
		panic(act.Panic)
	case act.Err != nil:
		return first.Note, echo.NewHTTPError(http.StatusInternalServerError, act.Err.Error())
	case act.Chunks != nil:
		for _, chunk := range act.Chunks {
			_, _ = io.WriteString(c.Response(), chunk)
			_ = http.NewResponseController(c.Response()).Flush()
		}
	default:
		respond(act.Status, act.Body)
	}
	return first.Note, nil
}

func newApp(_ *testing.T, app adaptertest.App) http.Handler {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	app.Config.Tenant = accountOf
	if app.Recovery == adaptertest.Outside {
		e.Use(middleware.Recover())
	}
	e.Use(outer(app))
	if app.Tx != nil {
		e.POST("/accounts/:id/charges", echo5once.WrapTx(app.Tx, func(c *echo.Context, tx adaptertest.Tx) error {
			note, err := perform(app, c)
			tx["order"] = note
			return err
		}, app.Config))
		return e
	}
	e.Use(echo5once.Middleware(app.Guard, app.Config), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Response().Header().Set("X-Inner", app.Inner())
			return next(c)
		}
	})
	if app.Recovery == adaptertest.Inside {
		e.Use(middleware.Recover())
	}
	handle := func(c *echo.Context) error {
		_, err := perform(app, c)
		return err
	}
	e.POST("/accounts/:id/charges", handle)
	e.GET("/accounts/:id/charges", handle)
	return e
}

func TestMiddleware_KeepsTheRulesOfAdapters(t *testing.T) {
	adaptertest.Run(t, adaptertest.Adapter{New: newApp, Route: "/accounts/:id/charges"})
}

// serve serves a keyed POST.
func serve(e *echo.Echo, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader("a"))
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

func wantReply(t *testing.T, w *httptest.ResponseRecorder, status int, body string, replayed bool) {
	t.Helper()
	if w.Code != status || strings.TrimSpace(w.Body.String()) != body || (w.Header().Get("Idempotency-Replayed") == "true") != replayed {
		t.Errorf("got %d %q %v, want %d %q, replayed %v", w.Code, w.Body, w.Header(), status, body, replayed)
	}
}

// newOnce returns an instance of echo and a middleware for the store.
func newOnce() (*echo.Echo, echo.MiddlewareFunc, *memstore.Store) {
	store := memstore.New(memstore.Config{})
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return e, echo5once.Middleware(onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), httponce.Config{Tenant: httponce.SingleTenant}), store
}

func wantState(t *testing.T, store *memstore.Store, operation string, want onlyonce.State) {
	t.Helper()
	rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: operation, Key: "k"})
	if err != nil || rec.State != want {
		t.Errorf("the record is %+v, %v, want %s", rec, err, want)
	}
}

func created(c *echo.Context) error { return c.String(http.StatusCreated, "charged") }

func TestMiddleware_TheErrorOfAHandlerReachesTheMiddlewareOutside(t *testing.T) {
	e, once, store := newOnce()
	e.HTTPErrorHandler = func(c *echo.Context, err error) { // does not look at Committed
		_ = c.String(http.StatusBadGateway, err.Error())
	}
	var seen []error
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			seen = append(seen, err)
			return err
		}
	})
	closed, runs := errors.New("the bank is closed"), 0
	e.POST("/charges", func(c *echo.Context) error {
		if runs++; runs == 1 {
			return closed
		}
		return created(c)
	}, once)
	wantReply(t, serve(e, "/charges"), 502, "the bank is closed", false)
	wantState(t, store, "POST /charges", onlyonce.StateFailed)
	wantReply(t, serve(e, "/charges"), 201, "charged", false)
	wantReply(t, serve(e, "/charges"), 201, "charged", true)
	if len(seen) != 3 || seen[0] != closed || seen[1] != nil || seen[2] != nil {
		t.Errorf("the errors are %v", seen)
	}
}

func TestMiddleware_AnErrorOfWhichNobodyWritesAResponseIsAFailure(t *testing.T) {
	e, once, store := newOnce()
	e.HTTPErrorHandler = func(*echo.Context, error) {}
	e.POST("/charges", func(*echo.Context) error { return errors.New("the bank is closed") }, once)
	wantReply(t, serve(e, "/charges"), 500, "", false)
	wantState(t, store, "POST /charges", onlyonce.StateFailed)
}

func TestMiddleware_AnErrorOfTheClientIsReplayed(t *testing.T) {
	e, once, store := newOnce()
	e.POST("/charges", func(*echo.Context) error { return echo.NewHTTPError(http.StatusConflict, "sold out") }, once)
	for repeat := range 2 {
		wantReply(t, serve(e, "/charges"), 409, `{"message":"sold out"}`, repeat > 0)
	}
	wantState(t, store, "POST /charges", onlyonce.StateCompleted)
}

func TestMiddleware_TwiceOnARouteRunsItsHandlerOnce(t *testing.T) {
	e, once, _ := newOnce()
	e.Use(once)
	group := e.Group("/v1", once)
	group.POST("/charges", created, once)
	for repeat := range 3 {
		wantReply(t, serve(e, "/v1/charges"), 201, "charged", repeat > 0)
	}
}

func TestMiddleware_ARequestWithoutARouteIsNotStored(t *testing.T) {
	e, once, store := newOnce()
	e.Use(once)
	e.GET("/charges", created)
	for range 2 {
		wantReply(t, serve(e, "/none"), 404, `{"message":"Not Found"}`, false)
		wantReply(t, serve(e, "/charges"), 405, `{"message":"Method Not Allowed"}`, false)
	}
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestMiddleware_InPreItPanicsAtTheFirstRequest(t *testing.T) {
	e, once, store := newOnce()
	e.Pre(once)
	e.POST("/charges", func(*echo.Context) error { t.Error("it ran"); return nil })
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "write e.Use(once)") {
				t.Errorf("the panic is %s", text)
			}
		}()
		serve(e, "/charges")
	}()
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestMiddleware_AMiddlewareOutsideFindsTheContextAsItWas(t *testing.T) {
	for name, handle := range map[string]echo.HandlerFunc{
		"after a response": created,
		"after a panic":    func(*echo.Context) error { panic("half done") },
	} {
		t.Run(name, func(t *testing.T) {
			e, once, _ := newOnce()
			e.POST("/charges", handle, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					w, r := c.Response(), c.Request()
					defer func() {
						_ = recover()
						if c.Response() != w || c.Request() != r {
							t.Error("the context has another response or request")
						}
					}()
					return next(c)
				}
			}, once)
			serve(e, "/charges")
		})
	}
}

func TestContext_PanicsOnARequestOfAnother(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "echo5once: Context: ") {
			t.Errorf("the panic is %s", text)
		}
	}()
	echo5once.Context(httptest.NewRequest("POST", "/", nil))
}

func TestMiddleware_AnErrorThatGzipCompressesOutsideIsComplete(t *testing.T) {
	for name, handler := range map[string]echo.HTTPErrorHandler{
		"": nil,
		", and the error handler does not look at Committed": func(c *echo.Context, err error) { _ = c.String(http.StatusConflict, err.Error()) },
	} {
		t.Run("as echo writes it"+name, func(t *testing.T) {
			e, once, _ := newOnce()
			if handler != nil {
				e.HTTPErrorHandler = handler
			}
			e.Use(middleware.Gzip())
			e.POST("/charges", func(*echo.Context) error { return echo.NewHTTPError(http.StatusConflict, "the account is closed") }, once)
			var want string
			for i := range 2 {
				r := httptest.NewRequest(http.MethodPost, "/charges", nil)
				r.Header.Set(httponce.DefaultHeader, "k")
				r.Header.Set("Accept-Encoding", "gzip")
				w := httptest.NewRecorder()
				e.ServeHTTP(w, r)
				var text []byte
				z, err := gzip.NewReader(w.Body)
				if err == nil {
					text, err = io.ReadAll(z)
				}
				if err != nil || w.Code != http.StatusConflict || !strings.Contains(string(text), "the account is closed") || i > 0 && string(text) != want {
					t.Errorf("got %d %q, %v, want %q", w.Code, text, err, want)
				}
				want = string(text)
			}
		})
	}
}
