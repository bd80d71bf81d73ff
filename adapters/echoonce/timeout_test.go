//go:build !race

package echoonce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/onlyonce-go/onlyonce"
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
