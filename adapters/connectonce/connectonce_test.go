package connectonce_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/connectonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

const procedure = "/shop.v1.ShopService/Charge"

type (
	text    = wrapperspb.StringValue
	handler func(ctx context.Context, run int32, note string) (string, error)
)

// A shop is a service with a client of each protocol.
type shop struct {
	t      *testing.T
	store  *memstore.Store
	runs   atomic.Int32
	client *connect.Client[text, text]
}

// each runs a test for each protocol with a shop of its own.
func each(t *testing.T, guard onlyonce.Config, cfg httponce.Config, h handler, test func(t *testing.T, s *shop)) {
	for name, option := range map[string]connect.ClientOption{
		"Connect": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			s := &shop{t: t, store: memstore.New(memstore.Config{})}
			if guard.Observer == nil {
				guard.Observer = onlyonce.DiscardEvents
			}
			cfg.Tenant = func(r *http.Request) string { return r.Header.Get("X-Account") }
			mux := http.NewServeMux()
			mux.Handle("/shop.v1.ShopService/", connectonce.Wrap(onlyonce.New(s.store, guard), connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
				answer, err := h(ctx, s.runs.Add(1), req.Msg.GetValue())
				if err != nil {
					return nil, err
				}
				return connect.NewResponse(wrapperspb.String(answer)), nil
			}), cfg))
			server := httptest.NewUnstartedServer(mux)
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			s.client = connect.NewClient[text, text](server.Client(), server.URL+procedure, option)
			test(t, s)
		})
	}
}

// call calls the procedure with a key, or with none if it is empty.
func (s *shop) call(account, key, note string) (answer string, replayed bool, err error) {
	return s.callWithin(s.t.Context(), account, key, note)
}

func (s *shop) callWithin(ctx context.Context, account, key, note string) (answer string, replayed bool, err error) {
	req := connect.NewRequest(wrapperspb.String(note))
	req.Header().Set("X-Account", account)
	if key != "" {
		req.Header().Set("Idempotency-Key", key)
	}
	resp, err := s.client.CallUnary(ctx, req)
	if err != nil {
		var failed *connect.Error
		return "", errors.As(err, &failed) && failed.Meta().Get("Idempotency-Replayed") == "true", err
	}
	return resp.Msg.GetValue(), resp.Header().Get("Idempotency-Replayed") == "true", nil
}

// wantRejection fails unless err has a code, the reason, and a RetryInfo if the call may be retried.
func (s *shop) wantRejection(err error, code connect.Code, reason string, retry bool) {
	s.t.Helper()
	gotReason, gotRetry := "", false
	var failed *connect.Error
	if errors.As(err, &failed) {
		for _, detail := range failed.Details() {
			switch d, _ := detail.Value(); d := d.(type) {
			case *errdetails.ErrorInfo:
				gotReason = d.GetReason()
			case *errdetails.RetryInfo:
				gotRetry = true
			}
		}
	}
	if connect.CodeOf(err) != code || gotReason != reason || gotRetry != retry {
		s.t.Errorf("got %v, %q, retry %v; want %v, %q, %v", err, gotReason, gotRetry, code, reason, retry)
	}
}

func charged(_ context.Context, run int32, note string) (string, error) {
	return note + strings.Repeat("!", int(run)), nil
}

func TestWrap_ARepeatGetsTheFirstResponse(t *testing.T) {
	each(t, onlyonce.Config{}, httponce.Config{}, charged, func(t *testing.T, s *shop) {
		for repeat := range 3 {
			if answer, replayed, err := s.call("7", "k", "a"); answer != "a!" || replayed != (repeat > 0) || err != nil {
				t.Errorf("got %q, replayed %v, %v", answer, replayed, err)
			}
		}
		rec, err := s.store.Lookup(t.Context(), onlyonce.ID{Tenant: "7", Operation: procedure, Key: "k"})
		if err != nil || rec.State != onlyonce.StateCompleted {
			t.Errorf("the record is %+v, %v", rec, err)
		}
	})
}

func TestWrap_TheCodeDecidesTheOutcome(t *testing.T) {
	for code, completes := range map[connect.Code]bool{
		connect.CodeInternal: false, connect.CodeUnavailable: false, connect.CodeCanceled: false, connect.CodeDeadlineExceeded: false, connect.CodePermissionDenied: false, connect.CodeAborted: true, connect.CodeNotFound: true,
	} {
		t.Run(code.String(), func(t *testing.T) {
			h := func(ctx context.Context, run int32, note string) (string, error) {
				if run == 1 {
					return "", connect.NewError(code, errors.New("no"))
				}
				return charged(ctx, run, note)
			}
			each(t, onlyonce.Config{}, httponce.Config{}, h, func(t *testing.T, s *shop) {
				if _, _, err := s.call("7", "k", "a"); connect.CodeOf(err) != code {
					t.Errorf("the first call got %v", err)
				}
				answer, replayed, err := s.call("7", "k", "a")
				if replayed != completes || (err != nil) != completes || completes && connect.CodeOf(err) != code || !completes && answer != "a!!" {
					t.Errorf("the second call got %q, replayed %v, %v", answer, replayed, err)
				}
			})
		})
	}
}

func TestWrap_RejectsWithACodeAndDetails(t *testing.T) {
	h := func(ctx context.Context, run int32, note string) (string, error) {
		if note == "panic" {
			panic(http.ErrAbortHandler)
		}
		return charged(ctx, run, note)
	}
	each(t, onlyonce.Config{HoldUnknown: true}, httponce.Config{Required: true}, h, func(t *testing.T, s *shop) {
		_, _, err := s.call("7", "", "a")
		s.wantRejection(err, connect.CodeInvalidArgument, "IDEMPOTENCY_KEY_MISSING", false)
		_, _, err = s.call("", "k", "a")
		s.wantRejection(err, connect.CodeUnauthenticated, "TENANT_MISSING", false)
		if _, _, err := s.call("7", "k", "a"); err != nil {
			t.Error(err)
		}
		_, _, err = s.call("7", "k", "b")
		s.wantRejection(err, connect.CodeFailedPrecondition, "IDEMPOTENCY_KEY_REUSED", false)
		if _, _, err := s.call("7", "p", "panic"); err == nil {
			t.Error("a panic is a success")
		}
		_, _, err = s.call("7", "p", "panic")
		s.wantRejection(err, connect.CodeFailedPrecondition, "OUTCOME_UNKNOWN", false)
	})
}

func TestWrap_ARunningCallIsRejectedWithARetryInfo(t *testing.T) {
	var running, goOn chan struct{}
	h := func(ctx context.Context, run int32, note string) (string, error) {
		close(running)
		<-goOn
		return charged(ctx, run, note)
	}
	each(t, onlyonce.Config{}, httponce.Config{}, h, func(t *testing.T, s *shop) {
		running, goOn = make(chan struct{}), make(chan struct{})
		ended := make(chan error)
		go func() {
			_, _, err := s.call("7", "k", "a")
			ended <- err
		}()
		<-running
		_, _, err := s.call("7", "k", "a")
		s.wantRejection(err, connect.CodeAborted, "REQUEST_IN_PROGRESS", true)
		close(goOn)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A call that was canceled may have had its effect, whatever it asks for.
func TestWrap_ACanceledCallIsNotReleased(t *testing.T) {
	h := func(context.Context, int32, string) (string, error) {
		canceled := connect.NewError(connect.CodeCanceled, errors.New("canceled"))
		detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{})
		if err != nil {
			t.Error(err)
		}
		canceled.AddDetail(detail)
		return "", canceled
	}
	unknown := httponce.Config{UnknownStatus: func(status int) bool { return status == 499 }}
	each(t, onlyonce.Config{HoldUnknown: true}, unknown, h, func(t *testing.T, s *shop) {
		if _, _, err := s.call("7", "k", "a"); connect.CodeOf(err) != connect.CodeCanceled {
			t.Errorf("the call ended with %v", err)
		}
		_, _, err := s.call("7", "k", "a")
		s.wantRejection(err, connect.CodeFailedPrecondition, "OUTCOME_UNKNOWN", false)
	})
}

// A handler that returns the error of a server that it has called would otherwise make its own
// caller's command one that is "still running" for good.
func TestWrap_AnErrorThatAsksForARetryIsNotTheResponse(t *testing.T) {
	h := func(ctx context.Context, run int32, note string) (string, error) {
		if run > 1 {
			return charged(ctx, run, note)
		}
		running := connect.NewError(connect.CodeAborted, errors.New("still running"))
		detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
		if err != nil {
			t.Error(err)
		}
		running.AddDetail(detail)
		return "", running
	}
	each(t, onlyonce.Config{}, httponce.Config{}, h, func(t *testing.T, s *shop) {
		_, _, err := s.call("7", "k", "a")
		s.wantRejection(err, connect.CodeAborted, "", true)
		if answer, replayed, err := s.call("7", "k", "a"); answer != "a!!" || replayed || err != nil {
			t.Errorf("a repeat got %q, replayed %v, %v", answer, replayed, err)
		}
	})
}

func TestWrap_ARepeatWithoutTheStoredMessageIsRejected(t *testing.T) {
	long := strings.Repeat("x", 100)
	each(t, onlyonce.Config{}, httponce.Config{MaxResponse: 5}, func(context.Context, int32, string) (string, error) { return long, nil }, func(t *testing.T, s *shop) {
		if answer, _, err := s.call("acme", "k", "a"); answer != long || err != nil {
			t.Errorf("got %q, %v", answer, err)
		}
		_, _, err := s.call("acme", "k", "a")
		s.wantRejection(err, connect.CodeFailedPrecondition, "RESPONSE_OMITTED", false)
		if n := s.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestWrap_ARequestOfNoProtocolGetsAProblem(t *testing.T) {
	h := connectonce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.NotFoundHandler(), httponce.Config{Tenant: httponce.SingleTenant, Required: true})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", procedure, strings.NewReader("a")))
	if w.Code != 400 || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
}

func TestWrap_ACommandDoesNotEndAtTheDeadlineOfItsClient(t *testing.T) {
	h := func(ctx context.Context, run int32, note string) (string, error) {
		if _, limited := ctx.Deadline(); limited {
			return "limited", nil
		}
		return charged(ctx, run, note)
	}
	each(t, onlyonce.Config{}, httponce.Config{}, h, func(t *testing.T, s *shop) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if answer, _, err := s.callWithin(ctx, "7", "k", "a"); answer != "a!" || err != nil {
			t.Errorf("with a key, got %q, %v", answer, err)
		}
		if answer, _, err := s.callWithin(ctx, "7", "", "a"); answer != "limited" || err != nil {
			t.Errorf("without a key, got %q, %v", answer, err)
		}
	})
}
