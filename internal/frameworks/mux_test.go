package frameworks_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func standardMux(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/charges", httponce.Wrap(guard, charge, httponce.Config{Tenant: accountOf}))
	return mux
}

func TestMux_TheStandardMux(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(standardMux(s.guard, s.charge)) })
}

func TestMux_TheStandardMuxNamesTheOperationAfterThePattern(t *testing.T) {
	namesTheRoute(t, func(s *shop) client { return of(standardMux(s.guard, s.charge)) }, "POST /accounts/{id}/charges")
}

func wholeMux(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /accounts/{id}/charges", charge)
	return httponce.Wrap(guard, mux, httponce.Config{Tenant: accountOf})
}

func TestMux_AWrappedMuxNamesTheOperationAfterThePattern(t *testing.T) {
	keepsThePromise(t, func(s *shop) client { return of(wholeMux(s.guard, s.charge)) })
	namesTheRoute(t, func(s *shop) client { return of(wholeMux(s.guard, s.charge)) }, "POST /accounts/{id}/charges")
	s := newShop()
	send := of(wholeMux(s.guard, s.charge))
	for range 2 {
		if got := send("/no/such/path", "k", "a"); got.status != 404 || got.replayed {
			t.Errorf("an unknown path got %+v", got)
		}
	}
}

func recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func TestMux_APanicIsUnknownWhereverItIsRecovered(t *testing.T) {
	broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("half done") })
	for where, wire := range map[string]func(*shop) http.Handler{
		"outside": func(s *shop) http.Handler {
			return recovering(httponce.Wrap(s.guard, broken, httponce.Config{Tenant: accountOf}))
		},
		"inside": func(s *shop) http.Handler {
			return httponce.Wrap(s.guard, recovering(broken), httponce.Config{Tenant: accountOf})
		},
	} {
		s := newShop()
		if got := of(wire(s))("/charges", "k", "a"); got.status != 500 {
			t.Errorf("%+v", got)
		}
		if rec := s.record(t, "POST /charges"); rec.State != onlyonce.StateUnknown {
			t.Errorf("recovered %s, the record is %s", where, rec.State)
		}
	}
}

func timeoutOutside(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	once := httponce.Wrap(guard, charge, httponce.Config{Tenant: accountOf})
	return http.TimeoutHandler(once, time.Second, "too slow")
}

func timeoutInside(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	slow := recovering(http.TimeoutHandler(charge, time.Second, "too slow")) // or behind any other middleware
	return httponce.Wrap(guard, slow, httponce.Config{Tenant: accountOf})
}

func TestMux_WrapRejectsATimeoutHandlerThatItSees(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "http.TimeoutHandler") {
			t.Errorf("the panic is %s", text)
		}
	}()
	s := newShop()
	httponce.Wrap(s.guard, http.TimeoutHandler(http.HandlerFunc(s.charge), time.Second, "too slow"), httponce.Config{Tenant: accountOf})
}

func TestMux_ATimeoutHandlerInsideLetsTwoAttemptsRunAtATime(t *testing.T) {
	for want, wire := range map[int32]func(*onlyonce.Guard, http.HandlerFunc) http.Handler{2: timeoutInside, 1: timeoutOutside} {
		synctest.Test(t, func(t *testing.T) {
			s, goOn := newShop(), make(chan struct{})
			send := of(wire(s.guard, func(http.ResponseWriter, *http.Request) {
				s.runs.Add(1)
				<-goOn
			}))
			first, again := send("/charges", "k", "a"), send("/charges", "k", "a")
			if first.status != 503 || s.runs.Load() != want {
				t.Errorf("%d at a time, want %d; answers %+v and %+v", s.runs.Load(), want, first, again)
			}
			if rec := s.record(t, "POST /charges"); want == 2 && rec.State != onlyonce.StateUnknown {
				t.Errorf("the record is %s", rec.State)
			}
			close(goOn)
			synctest.Wait()
		})
	}
}

// chargeChecked is a handler whose client may correct a body and keep the key.
func chargeChecked(charge http.HandlerFunc, valid func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := valid(r); err != nil {
			httponce.DontStore(r) // the key is as if the request had not been sent
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		charge(w, r)
	}
}

func TestMux_AResponseThatIsNotStoredLeavesTheKeyForTheCorrectedRequest(t *testing.T) {
	empty := func(r *http.Request) error {
		if r.ContentLength == 0 {
			return fmt.Errorf("the body is empty")
		}
		return nil
	}
	for corrected, wire := range map[int]func(s *shop) http.HandlerFunc{
		201: func(s *shop) http.HandlerFunc { return chargeChecked(s.charge, empty) },
		422: func(s *shop) http.HandlerFunc { // the default: a 400 is a response like others
			return func(w http.ResponseWriter, r *http.Request) {
				if err := empty(r); err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				s.charge(w, r)
			}
		},
	} {
		s := newShop()
		send := of(standardMux(s.guard, wire(s)))
		if got := send(charges, "k", ""); got.status != 400 || !strings.Contains(got.body, "empty") {
			t.Errorf("%+v", got)
		}
		if got := send(charges, "k", "a"); got.status != corrected {
			t.Errorf("the corrected request got %+v, want %d", got, corrected)
		}
	}
}
