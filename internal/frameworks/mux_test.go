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
	s := newShop()
	send := of(standardMux(s.guard, s.charge))
	send(charges, "k", "a")
	if !s.operations()["POST /accounts/{id}/charges"] {
		t.Errorf("the operations are %v", s.operations())
	}
	if got := send("/accounts/8/charges", "k", "a"); got.status != 422 {
		t.Errorf("the same key for another account got %+v", got)
	}
}

func wholeMux(guard *onlyonce.Guard, charge http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /accounts/{id}/charges", charge)
	return httponce.Wrap(guard, mux, httponce.Config{Tenant: accountOf})
}

func TestMux_WrappingTheWholeMuxMakesAnOperationOfEveryPath(t *testing.T) {
	s := newShop()
	keysArePerPath(t, s, of(wholeMux(s.guard, s.charge)))
}

// keysArePerPath shows the problem if the layer runs before the router.
func keysArePerPath(t *testing.T, s *shop, send client) {
	t.Helper()
	one, other := send(charges, "k", "a"), send("/accounts/8/charges", "k", "a")
	if one.status != 201 || other.status != 201 || s.runs.Load() != 2 {
		t.Errorf("one key on two accounts: %+v and %+v, %d runs", one, other, s.runs.Load())
	}
	if lost := send("/no/such/path", "k", "a"); lost.status != 404 {
		t.Errorf("an unknown path: %+v", lost)
	}
	if again := send("/no/such/path", "k", "a"); again.status != 404 || !again.replayed {
		t.Errorf("the 404 is not stored: %+v", again)
	}
	if len(s.operations()) != 3 {
		t.Errorf("the operations are %v", s.operations())
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

func TestMux_APanicIsUnknownOnlyIfItIsRecoveredOutside(t *testing.T) {
	broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("half done") })
	for want, wire := range map[onlyonce.State]func(*shop) http.Handler{
		onlyonce.StateUnknown: func(s *shop) http.Handler {
			return recovering(httponce.Wrap(s.guard, broken, httponce.Config{Tenant: accountOf}))
		},
		onlyonce.StateFailed: func(s *shop) http.Handler {
			return httponce.Wrap(s.guard, recovering(broken), httponce.Config{Tenant: accountOf})
		},
	} {
		s := newShop()
		if got := of(wire(s))("/charges", "k", "a"); got.status != 500 {
			t.Errorf("%+v", got)
		}
		if rec := s.record(t, "POST /charges"); rec.State != want {
			t.Errorf("the record is %s, want %s", rec.State, want)
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
