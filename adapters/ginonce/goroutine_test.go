package ginonce_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/onlyonce-go/onlyonce"
)

// onAnotherGoroutine runs the handlers after it as gin-contrib/timeout does before its time is over.
func onAnotherGoroutine(c *gin.Context) {
	panicked := make(chan any)
	go func() {
		defer func() { panicked <- recover() }()
		c.Next()
	}()
	if p := <-panicked; p != nil {
		panic(p)
	}
}

func TestMiddleware_OnAnotherGoroutineItPanicsBeforeAnythingRuns(t *testing.T) {
	e, store := newEngine(onAnotherGoroutine)
	e.POST("/charges", func(*gin.Context) { t.Error("it ran") })
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "write http.TimeoutHandler(engine, …) instead") {
				t.Errorf("the panic is %s", text)
			}
		}()
		serve(e, "/charges")
	}()
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestMiddleware_ATimeoutHandlerAroundTheEngineIsAccepted(t *testing.T) {
	e, store := newEngine()
	e.POST("/charges", func(c *gin.Context) { c.Status(http.StatusCreated) })
	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	if http.TimeoutHandler(e, time.Hour, "").ServeHTTP(w, r); w.Code != http.StatusCreated {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	wantState(t, store, "POST /charges", onlyonce.StateCompleted)
}

func TestMiddleware_AContextOfATestIsAccepted(t *testing.T) {
	e, store := newEngine()
	once := e.Handlers[0]
	c := gin.CreateTestContextOnly(httptest.NewRecorder(), gin.New())
	c.Request = httptest.NewRequest(http.MethodPost, "/charges", nil)
	c.Request.Header.Set("Idempotency-Key", "k")
	once(c)
	wantState(t, store, "POST /*", onlyonce.StateCompleted)
}

func TestMiddleware_AContextThatATestPassesToHandleContextIsAccepted(t *testing.T) {
	w := httptest.NewRecorder()
	c, e := gin.CreateTestContext(w)
	from, store := newEngine()
	e.POST("/charges", from.Handlers[0], func(c *gin.Context) { c.Status(http.StatusCreated) })
	c.Request = httptest.NewRequest(http.MethodPost, "/charges", nil)
	c.Request.Header.Set("Idempotency-Key", "k")
	e.HandleContext(c)
	wantState(t, store, "POST /charges", onlyonce.StateCompleted)
}
