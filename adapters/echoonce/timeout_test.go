//go:build !race

package echoonce_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// Not with the race detector: echo's own middleware writes to the context in a goroutine that
// it leaves behind.
func TestMiddleware_ATimeoutInsideLeavesTheOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, once, store := newOnce()
		goOn := make(chan struct{})
		//lint:ignore SA1019 what is deprecated is still used
		timeout := middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Second})
		e.POST("/charges", func(c echo.Context) error {
			<-goOn
			return created(c)
		}, once, timeout)
		if w := serve(e, "/charges"); w.Code != 503 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		wantState(t, store, "POST /charges", onlyonce.StateUnknown)
		close(goOn)
		synctest.Wait()
	})
}

func TestMiddleware_ATimeoutOutsidePanics(t *testing.T) {
	//lint:ignore SA1019 what is deprecated is still used
	timeout := middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Hour})
	for name, outside := range map[string][]echo.MiddlewareFunc{
		"directly":    {timeout},
		"of net/http": {echo.WrapMiddleware(func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Hour, "") })},
		"with a middleware between them that wraps the response": {timeout, middleware.BodyDump(func(echo.Context, []byte, []byte) {})},
	} {
		t.Run(name, func(t *testing.T) {
			e, once, _ := newOnce()
			e.POST("/charges", created, append(outside, once)...)
			defer func() {
				if p := recover(); p == nil || !strings.Contains(p.(string), "use middleware.ContextTimeout inside this one instead") {
					t.Errorf("recovered %v", p)
				}
			}()
			serve(e, "/charges")
		})
	}
}

func TestMiddleware_ADeadlineReachesTheHandlerFromInsideOnly(t *testing.T) {
	e, once, _ := newOnce()
	var isSet bool
	handler := func(c echo.Context) error {
		_, isSet = c.Request().Context().Deadline()
		return created(c)
	}
	deadline := middleware.ContextTimeout(time.Hour)
	e.POST("/inside", handler, once, deadline)
	e.POST("/outside", handler, deadline, once)
	for path, want := range map[string]bool{"/inside": true, "/outside": false} {
		if serve(e, path); isSet != want {
			t.Errorf("%s: a deadline: %t", path, isSet)
		}
	}
}

func TestMiddleware_ATimeoutHandlerAroundEchoIsAccepted(t *testing.T) {
	e, once, store := newOnce()
	e.POST("/charges", created, once)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	r.Header.Set(httponce.DefaultHeader, "k")
	if http.TimeoutHandler(e, time.Hour, "").ServeHTTP(w, r); w.Code != http.StatusCreated {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	wantState(t, store, "POST /charges", onlyonce.StateCompleted)
}
