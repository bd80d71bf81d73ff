package ginonce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/ginonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	os.Exit(m.Run())
}

func accountOf(r *http.Request) string { return ginonce.Context(r).GetString("account") }

// outer is the middleware before ginonce.
func outer(app adaptertest.App) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Set("account", c.GetHeader("X-Account"))
		c.Header("X-Outer", app.Outer())
		body, _ := io.ReadAll(c.Request.Body)
		c.Request.Body = io.NopCloser(bytes.NewReader(body))
	}
}

type charge struct {
	Note string `json:"note"`
}

// perform binds the body and does what the suite asks for.
func perform(app adaptertest.App, c *gin.Context) (string, error) {
	var first, second charge
	if c.Request.Method == http.MethodPost {
		if err := errors.Join(c.ShouldBindBodyWithJSON(&first), c.ShouldBindBodyWithJSON(&second)); err != nil || first != second {
			_ = c.AbortWithError(http.StatusBadRequest, err)
			return "", nil
		}
	}
	respond := func(status int, body string) { c.Data(status, "application/json", []byte(body)) }
	act := app.Handle(adaptertest.Call{Note: first.Note, Context: c.Request.Context(), Request: c.Request, Respond: respond})
	switch {
	case act.Panic != nil:
		panic(act.Panic)
	case act.Err != nil:
		_ = c.Error(act.Err)
		return first.Note, act.Err
	case act.Chunks != nil:
		for _, chunk := range act.Chunks {
			_, _ = c.Writer.WriteString(chunk)
			c.Writer.Flush()
		}
	default:
		respond(act.Status, act.Body)
	}
	return first.Note, nil
}

func newApp(_ *testing.T, app adaptertest.App) http.Handler {
	e := gin.New()
	app.Config.Tenant = accountOf
	if app.Recovery == adaptertest.Outside {
		e.Use(gin.Recovery())
	}
	e.Use(outer(app))
	if app.Tx != nil {
		e.POST("/accounts/:id/charges", ginonce.WrapTx(app.Tx, func(c *gin.Context, tx adaptertest.Tx) error {
			note, err := perform(app, c)
			tx["order"] = note
			return err
		}, app.Config))
		return e
	}
	e.Use(ginonce.Middleware(app.Guard, app.Config), func(c *gin.Context) { c.Header("X-Inner", app.Inner()) })
	if app.Recovery == adaptertest.Inside {
		e.Use(gin.Recovery())
	}
	handle := func(c *gin.Context) { _, _ = perform(app, c) }
	e.POST("/accounts/:id/charges", handle)
	e.GET("/accounts/:id/charges", handle)
	return e
}

func TestMiddleware_KeepsTheRulesOfAdapters(t *testing.T) {
	adaptertest.Run(t, adaptertest.Adapter{New: newApp, Route: "/accounts/:id/charges"})
}

// serve serves a keyed POST.
func serve(e *gin.Engine, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader("a"))
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

func wantReply(t *testing.T, w *httptest.ResponseRecorder, status int, body string, replayed bool) {
	t.Helper()
	if w.Code != status || w.Body.String() != body || (w.Header().Get("Idempotency-Replayed") == "true") != replayed {
		t.Errorf("got %d %q %v, want %d %q, replayed %v", w.Code, w.Body, w.Header(), status, body, replayed)
	}
}

// newEngine returns an engine, whose middleware is for the store.
func newEngine(before ...gin.HandlerFunc) (*gin.Engine, *memstore.Store) {
	store := memstore.New(memstore.Config{})
	e := gin.New()
	e.Use(before...)
	e.Use(ginonce.Middleware(onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), httponce.Config{Tenant: httponce.SingleTenant}))
	return e, store
}

func wantState(t *testing.T, store *memstore.Store, operation string, want onlyonce.State) {
	t.Helper()
	rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: operation, Key: "k"})
	if err != nil || rec.State != want {
		t.Errorf("the record is %+v, %v, want %s", rec, err, want)
	}
}

// writesErrors is a middleware that writes the errors that handlers have reported.
func writesErrors(c *gin.Context) {
	if c.Next(); len(c.Errors) > 0 {
		c.JSON(http.StatusBadGateway, gin.H{"error": c.Errors.Last().Error()})
	}
}

func TestMiddleware_AMiddlewareBeforeItMayWriteAnErrorThatAHandlerReports(t *testing.T) {
	e, store := newEngine(writesErrors)
	runs := 0
	e.POST("/charges", func(c *gin.Context) {
		if runs++; runs == 1 {
			_ = c.Error(errors.New("the bank is closed"))
			return
		}
		c.String(http.StatusCreated, "charged")
	})
	wantReply(t, serve(e, "/charges"), 502, `{"error":"the bank is closed"}`, false)
	wantState(t, store, "POST /charges", onlyonce.StateFailed)
	wantReply(t, serve(e, "/charges"), 201, "charged", false)
	wantReply(t, serve(e, "/charges"), 201, "charged", true)
}

func TestMiddleware_AMiddlewareAfterItMayWriteAnErrorThatAHandlerReports(t *testing.T) {
	e, store := newEngine()
	e.POST("/charges", writesErrors, func(c *gin.Context) { _ = c.Error(errors.New("no")) })
	wantReply(t, serve(e, "/charges"), 502, `{"error":"no"}`, false)
	wantState(t, store, "POST /charges", onlyonce.StateFailed)
}

func TestMiddleware_AStatusThatAHandlerSetsBesidesAnErrorCounts(t *testing.T) {
	e, store := newEngine()
	e.POST("/charges", func(c *gin.Context) {
		_ = c.Error(errors.New("for the log"))
		c.Status(http.StatusNoContent)
	})
	wantReply(t, serve(e, "/charges"), 204, "", false)
	wantReply(t, serve(e, "/charges"), 204, "", true)
	wantState(t, store, "POST /charges", onlyonce.StateCompleted)
}

func TestMiddleware_TwiceOnARouteRunsItsHandlersOnce(t *testing.T) {
	e := gin.New()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	cfg := httponce.Config{Tenant: httponce.SingleTenant}
	e.Use(ginonce.Middleware(guard, cfg))
	group := e.Group("/v1", ginonce.Middleware(guard, cfg))
	group.POST("/charges", ginonce.Middleware(guard, cfg), func(c *gin.Context) { c.String(http.StatusCreated, "charged") })
	for repeat := range 3 {
		wantReply(t, serve(e, "/v1/charges"), 201, "charged", repeat > 0)
	}
}

func TestMiddleware_ARequestWithoutARouteIsNotStored(t *testing.T) {
	e, store := newEngine()
	e.HandleMethodNotAllowed = true
	e.GET("/charges", func(*gin.Context) {})
	for range 2 {
		wantReply(t, serve(e, "/none"), 404, "404 page not found", false)
		wantReply(t, serve(e, "/charges"), 405, "405 method not allowed", false)
	}
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
	e.NoRoute(func(c *gin.Context) { c.String(http.StatusCreated, "elsewhere") }) // as a proxy
	wantReply(t, serve(e, "/none"), 201, "elsewhere", false)
	wantReply(t, serve(e, "/none"), 201, "elsewhere", true)
	wantState(t, store, "POST /*", onlyonce.StateCompleted)
}

func TestMiddleware_AnEarlierAbortLeavesTheKeyAlone(t *testing.T) {
	e, store := newEngine(func(c *gin.Context) { c.AbortWithStatus(http.StatusForbidden) })
	e.POST("/charges", func(c *gin.Context) { t.Error("it ran") })
	wantReply(t, serve(e, "/charges"), 403, "", false)
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestMiddleware_HandleContextAfterItPanicsInsteadOfRecordingNothing(t *testing.T) {
	e, store := newEngine()
	e.POST("/new", func(c *gin.Context) { c.String(http.StatusCreated, "charged") })
	e.POST("/old", func(c *gin.Context) {
		c.Request.URL.Path = "/new"
		e.HandleContext(c)
	})
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "outer ResponseWriter") {
				t.Errorf("the panic is %s", text)
			}
		}()
		serve(e, "/old")
	}()
	wantState(t, store, "POST /old", onlyonce.StateUnknown)
}

func TestMiddleware_AWriteAfterTheHandlerIsObserved(t *testing.T) {
	told := 0
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) {
		if e.Outcome == onlyonce.OutcomeUnrecorded {
			told++
		}
	}})
	e := gin.New()
	var late gin.ResponseWriter
	e.POST("/charges", ginonce.Middleware(guard, httponce.Config{Tenant: httponce.SingleTenant}), func(c *gin.Context) {
		late = c.Writer
		c.Status(http.StatusAccepted)
	})
	wantReply(t, serve(e, "/charges"), 202, "", false)
	if _, err := late.WriteString("late"); err == nil || told != 1 {
		t.Errorf("the write got %v, the Observer was told %d times", err, told)
	}
}

func TestContext_PanicsOnARequestOfAnother(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "ginonce: Context: ") {
			t.Errorf("the panic is %s", text)
		}
	}()
	ginonce.Context(httptest.NewRequest("POST", "/", nil))
}

// A byValue is a ResponseWriter that cannot be compared, as those of some middlewares.
type byValue struct {
	gin.ResponseWriter
	_ []byte
}

func TestMiddleware_AResponseWriterThatCannotBeComparedIsNoProblem(t *testing.T) {
	e, _ := newEngine(func(c *gin.Context) { c.Writer = byValue{ResponseWriter: c.Writer} })
	e.POST("/charges", func(c *gin.Context) { c.String(http.StatusCreated, "charged") })
	e.GET("/charges", func(c *gin.Context) { c.String(http.StatusOK, "none") })
	wantReply(t, serve(e, "/charges"), 201, "charged", false)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/charges", nil))
	wantReply(t, w, 200, "none", false)
}

func TestMiddleware_AMiddlewareBeforeItFindsTheContextAsItWas(t *testing.T) {
	for name, handle := range map[string]gin.HandlerFunc{
		"after a response": func(c *gin.Context) { c.String(http.StatusCreated, "charged") },
		"after a panic":    func(*gin.Context) { panic("half done") },
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newEngine(func(c *gin.Context) {
				w, r := c.Writer, c.Request
				defer func() {
					_ = recover()
					if c.Writer != w || c.Request != r {
						t.Error("the context has another writer or request")
					}
				}()
				c.Next()
			})
			e.POST("/charges", handle)
			serve(e, "/charges")
		})
	}
}

func TestWrapTx_EachRunFindsTheContextAsItWas(t *testing.T) {
	store := adaptertest.NewStore()
	store.Twice = true
	e, runs := gin.New(), 0
	e.POST("/orders", func(c *gin.Context) { c.Set("name", "before") }, ginonce.WrapTx(onlyonce.NewTx(store, onlyonce.Config{}), func(c *gin.Context, tx adaptertest.Tx) error {
		runs++
		if c.GetString("name") != "before" || len(c.Errors) > 0 {
			t.Errorf("run %d found %v, %v", runs, c.Keys, c.Errors)
		}
		c.Set("name", "after")
		_ = c.Error(errors.New("for the log"))
		c.String(http.StatusCreated, "run %d", runs)
		return nil
	}, httponce.Config{Tenant: httponce.SingleTenant}), func(*gin.Context) { t.Error("a handler after it ran") })
	wantReply(t, serve(e, "/orders"), 201, "run 2", false)
	wantReply(t, serve(e, "/orders"), 201, "run 2", true)
}

func TestMiddleware_APanicThatRecoveryTakesForABrokenConnectionLeavesTheOutcomeUnknown(t *testing.T) {
	for _, p := range []error{http.ErrAbortHandler, syscall.EPIPE} {
		e, store := newEngine()
		e.POST("/charges", gin.Recovery(), func(*gin.Context) { panic(p) })
		wantReply(t, serve(e, "/charges"), 500, "", false)
		wantState(t, store, "POST /charges", onlyonce.StateUnknown)
	}
}

func TestMiddleware_APanicAfterAPartOfTheResponseLeavesTheOutcomeUnknown(t *testing.T) {
	e, store := newEngine()
	e.POST("/charges", gin.Recovery(), func(c *gin.Context) {
		c.String(http.StatusCreated, "charged")
		panic("half done")
	})
	wantReply(t, serve(e, "/charges"), 201, "charged", false)
	wantState(t, store, "POST /charges", onlyonce.StateUnknown)
}

// losing is a store that takes each lease away before its attempt is settled.
type losing struct{ onlyonce.Store }

func (losing) Settle(context.Context, onlyonce.Hold, onlyonce.Settlement) error {
	return onlyonce.ErrLost
}

// gin.Recovery does not pass on the panic by which httponce breaks off a response.
func TestMiddleware_AStreamWhoseLeaseIsLostBreaksOffAlthoughRecoveryIsBeforeIt(t *testing.T) {
	guard := onlyonce.New(losing{memstore.New(memstore.Config{})}, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	e := gin.New()
	e.POST("/charges", gin.Recovery(), ginonce.Middleware(guard, httponce.Config{Tenant: httponce.SingleTenant}), func(c *gin.Context) {
		c.String(http.StatusCreated, "charged")
		c.Writer.Flush()
	})
	server := httptest.NewServer(e)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/charges", strings.NewReader("a"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the client takes %q for the whole response", got)
	}
}

// A handler that streams to gin's Context.Stream learns from CloseNotify alone that it can stop.
func TestMiddleware_AStreamWithoutAnEndStopsOnceNothingIsKeptForAClientThatHasGone(t *testing.T) {
	e := gin.New()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents})
	stopped := make(chan bool, 1)
	e.POST("/charges", ginonce.Middleware(guard, httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: 1 << 10}), func(c *gin.Context) {
		begun := false
		stopped <- c.Stream(func(w io.Writer) bool {
			if !begun {
				begun = true
				_, _ = io.WriteString(w, "begun")
				return true
			}
			_, _ = w.Write(make([]byte, 4<<10))
			return true
		})
	})
	server := httptest.NewServer(e)
	defer server.CloseClientConnections()
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/charges", strings.NewReader("a"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	select {
	case gone := <-stopped:
		if !gone {
			t.Error("the stream ended by itself")
		}
	case <-time.After(time.Minute):
		t.Fatal("the stream goes on although its client has gone")
	}
}

// A write that failed says nothing about the response that a handler writes instead.
func TestMiddleware_AStreamAfterADiscardedResponseIsComplete(t *testing.T) {
	e := gin.New()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents})
	e.POST("/charges", ginonce.Middleware(guard, httponce.Config{Tenant: httponce.SingleTenant}), func(c *gin.Context) {
		c.Header("Content-Length", "1")
		if _, err := c.Writer.WriteString("too long"); err == nil || !httponce.Discard(c.Request) {
			t.Errorf("the response is not discarded after %v", err)
		}
		left := 3
		c.Stream(func(w io.Writer) bool {
			_, _ = io.WriteString(w, "ok")
			left--
			return left > 0
		})
	})
	server := httptest.NewServer(e)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/charges", strings.NewReader("a"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "okokok" {
		t.Errorf("the client gets %q, %v", got, err)
	}
}
