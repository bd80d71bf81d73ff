package frameworks_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}

func ginWrapH(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	once := httponce.Wrap(guard, charge, httponce.Config{
		Tenant:    accountOf,
		Operation: func(*http.Request) string { return "charge" },
	})
	e := gin.New()
	e.POST("/accounts/:id/charges", gin.WrapH(once))
	return e
}

func TestGin_WithAHandlerOfNetHTTP(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(ginWrapH(s.guard, s.charge)) })
}

func ginWhole(guard *onlyonce.Guard, charge gin.HandlerFunc) http.Handler {
	e := gin.New()
	e.POST("/accounts/:id/charges", charge)
	return httponce.Wrap(guard, e, httponce.Config{Tenant: accountOf})
}

// ginCharge is the handler for gin.
func (s *shop) ginCharge(c *gin.Context) {
	body, err := io.ReadAll(c.Request.Body)
	if err != nil {
		_ = c.AbortWithError(http.StatusBadRequest, err)
		return
	}
	made, err := s.run(body)
	if err != nil {
		_ = c.AbortWithError(http.StatusInternalServerError, err)
		return
	}
	c.Data(http.StatusCreated, "application/json", []byte(made))
}

func TestGin_WithItsOwnHandlers(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(ginWhole(s.guard, s.ginCharge)) })
}

func ginMiddleware(guard *onlyonce.Guard, charge gin.HandlerFunc) http.Handler {
	once := func(c *gin.Context) {
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })
		httponce.Wrap(guard, next, httponce.Config{Tenant: accountOf}).ServeHTTP(c.Writer, c.Request)
	}
	e := gin.New()
	e.Use(once)
	e.POST("/accounts/:id/charges", charge)
	return e
}

func TestGin_AGinMiddlewareThatCallsNextPanicsInsteadOfRecordingNothing(t *testing.T) {
	s := newShop()
	h := ginMiddleware(s.guard, s.ginCharge)
	for range 2 {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "gin.WrapH") {
					t.Errorf("the panic is %q", text)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), newRequest(charges, "k", "a"))
		}()
	}
	if rec := s.record(t, "POST "+charges); rec.State != onlyonce.StateUnknown || s.told(onlyonce.OutcomeReplayed) != 0 {
		t.Errorf("the record is %+v", rec)
	}
}
