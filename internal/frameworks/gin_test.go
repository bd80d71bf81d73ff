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
	"github.com/onlyonce-go/onlyonce/adapters/ginonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter = io.Discard
	os.Exit(m.Run())
}

func ginEngine(guard *onlyonce.Guard, authenticate, charge gin.HandlerFunc) http.Handler {
	once := ginonce.Middleware(guard, httponce.Config{
		Tenant: func(r *http.Request) string { return ginonce.Context(r).GetString("account") },
	})
	e := gin.Default()
	e.Use(authenticate) // sets "account"
	e.POST("/accounts/:id/charges", once, charge)
	return e
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

func (s *shop) ginEngine() client {
	return of(ginEngine(s.guard, func(c *gin.Context) { c.Set("account", "acme") }, s.ginCharge))
}

func TestGin_WithGinonce(t *testing.T) {
	keepsThePromise(t, (*shop).ginEngine)
	namesTheRoute(t, (*shop).ginEngine, "POST /accounts/:id/charges")
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
