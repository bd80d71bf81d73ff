package grpconce_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/grpconce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

const (
	method = "/shop.v1.Shop/Charge"
	stream = "/shop.v1.Shop/Watch"
)

type (
	text    = wrapperspb.StringValue
	handler func(ctx context.Context, run int32, note string) (*text, error)
)

// A shop is a server with one unary method and one stream.
type shop struct {
	t      *testing.T
	store  *memstore.Store
	handle handler
	runs   atomic.Int32
	conn   *grpc.ClientConn
}

// desc describes the service as generated code does.
var desc = grpc.ServiceDesc{
	ServiceName: "shop.v1.Shop", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Charge", Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(text)
		if err := decode(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, req any) (any, error) {
			s := srv.(*shop)
			return s.handle(ctx, s.runs.Add(1), req.(*text).GetValue())
		}
		if intercept == nil {
			return handle(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: method}, handle)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(wrapperspb.String("seen"))
	}}},
}

func charged(_ context.Context, run int32, note string) (*text, error) {
	return wrapperspb.String(fmt.Sprint(note, " ", run)), nil
}

// newShop serves a shop until the end of the test. Interceptors before grpconce's, and those of
// the client, may be given.
func newShop(t *testing.T, guard onlyonce.Config, cfg grpconce.Config, h handler, before []grpc.UnaryServerInterceptor, dial ...grpc.DialOption) *shop {
	t.Helper()
	s := &shop{t: t, store: memstore.New(memstore.Config{}), handle: h}
	if guard.Observer == nil {
		guard.Observer = onlyonce.DiscardEvents
	}
	cfg.Tenant = accountOf
	l := bufconn.Listen(1 << 16)
	s.serve(l, append(before, grpconce.UnaryServerInterceptor(onlyonce.New(s.store, guard), cfg))...)
	s.dial("passthrough:shop", append(dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	return s
}

func accountOf(ctx context.Context) string {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, "account"), "")
}

// serve serves the shop until the end of the test.
func (s *shop) serve(l net.Listener, interceptors ...grpc.UnaryServerInterceptor) {
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(interceptors...), grpc.StreamInterceptor(grpconce.StreamServerInterceptor()))
	server.RegisterService(&desc, s)
	var ended sync.WaitGroup
	ended.Go(func() { _ = server.Serve(l) })
	s.t.Cleanup(func() {
		server.Stop()
		ended.Wait()
	})
}

// dial connects the shop's client, until the end of the test.
func (s *shop) dial(target string, options ...grpc.DialOption) {
	s.t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.conn = conn
	s.t.Cleanup(func() { _ = conn.Close() })
}

// call calls the method with a key, or with none if it is empty.
func (s *shop) call(account, key, note string) (answer string, replayed bool, err error) {
	ctx := metadata.AppendToOutgoingContext(s.t.Context(), "account", account)
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, grpconce.MetadataKey, key)
	}
	var out text
	var header metadata.MD
	err = s.conn.Invoke(ctx, method, wrapperspb.String(note), &out, grpc.Header(&header))
	return out.GetValue(), len(header.Get(grpconce.MetadataReplayed)) > 0, err
}

func (s *shop) want(answer string, replayed bool, gotAnswer string, gotReplayed bool, err error) {
	s.t.Helper()
	if gotAnswer != answer || gotReplayed != replayed || err != nil {
		s.t.Errorf("got %q, replayed %v, %v; want %q, %v", gotAnswer, gotReplayed, err, answer, replayed)
	}
}

// wantRejection fails unless err has a code, the reason, and a RetryInfo if the call may be retried.
func (s *shop) wantRejection(err error, code codes.Code, reason string, retry bool) {
	s.t.Helper()
	gotReason, gotRetry := "", false
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			gotReason = d.GetReason()
		case *errdetails.RetryInfo:
			gotRetry = true
		}
	}
	if status.Code(err) != code || gotReason != reason || gotRetry != retry {
		s.t.Errorf("got %v, %q, retry %v; want %v, %q, %v", err, gotReason, gotRetry, code, reason, retry)
	}
}

func (s *shop) wantRuns(n int32) {
	s.t.Helper()
	if got := s.runs.Load(); got != n {
		s.t.Errorf("%d runs, want %d", got, n)
	}
}

func (s *shop) wantState(want onlyonce.State) {
	s.t.Helper()
	rec, err := s.store.Lookup(s.t.Context(), onlyonce.ID{Tenant: "7", Operation: method, Key: "k"})
	if err != nil || rec.State != want {
		s.t.Errorf("the record is %+v, %v, want %s", rec, err, want)
	}
}

func TestServer_ARepeatGetsTheFirstResponse(t *testing.T) {
	s := newShop(t, onlyonce.Config{}, grpconce.Config{}, charged, nil)
	for repeat := range 3 {
		answer, replayed, err := s.call("7", "k", "a")
		s.want("a 1", repeat > 0, answer, replayed, err)
	}
	s.wantState(onlyonce.StateCompleted)
	answer, replayed, err := s.call("8", "k", "a")
	s.want("a 2", false, answer, replayed, err)
	for run := range 2 {
		answer, replayed, err := s.call("7", "", "a")
		s.want(fmt.Sprint("a ", 3+run), false, answer, replayed, err)
	}
}

func TestServer_RejectsWithACodeAndDetails(t *testing.T) {
	running, goOn := make(chan struct{}), make(chan struct{})
	s := newShop(t, onlyonce.Config{}, grpconce.Config{Required: func(m string) bool { return m == method }}, func(ctx context.Context, run int32, note string) (*text, error) {
		if note == "slow" {
			close(running)
			<-goOn
		}
		return charged(ctx, run, note)
	}, nil)
	_, _, err := s.call("7", "", "a")
	s.wantRejection(err, codes.InvalidArgument, "IDEMPOTENCY_KEY_MISSING", false)
	_, _, err = s.call("7", "k!", "a")
	s.wantRejection(err, codes.InvalidArgument, "IDEMPOTENCY_KEY_INVALID", false)
	_, _, err = s.call("", "k", "a")
	s.wantRejection(err, codes.Unauthenticated, "TENANT_MISSING", false)
	s.wantRuns(0)
	if _, _, err := s.call("7", "k", "a"); err != nil {
		t.Error(err)
	}
	_, _, err = s.call("7", "k", "b")
	s.wantRejection(err, codes.FailedPrecondition, "IDEMPOTENCY_KEY_REUSED", false)
	var ended sync.WaitGroup
	ended.Go(func() { _, _, _ = s.call("7", "slow", "slow") })
	<-running
	_, _, err = s.call("7", "slow", "slow")
	s.wantRejection(err, codes.Aborted, "REQUEST_IN_PROGRESS", true)
	close(goOn)
	ended.Wait()
	s.wantRuns(2)
}

func TestServer_TheCodeDecidesTheOutcome(t *testing.T) {
	completed := []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		t.Run(code.String(), func(t *testing.T) {
			s := newShop(t, onlyonce.Config{}, grpconce.Config{}, func(ctx context.Context, run int32, note string) (*text, error) {
				if run > 1 {
					return charged(ctx, run, note)
				}
				failed, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{Reason: "SOLD_OUT", Domain: "shop"})
				if err != nil {
					t.Error(err)
				}
				return nil, failed.Err()
			}, nil)
			isCompleted := false
			for _, c := range completed {
				isCompleted = isCompleted || c == code
			}
			_, replayed, err := s.call("7", "k", "a")
			s.wantRejection(err, code, "SOLD_OUT", false)
			if replayed {
				t.Error("the first call is a replay")
			}
			answer, replayed, err := s.call("7", "k", "a")
			if isCompleted {
				s.wantRejection(err, code, "SOLD_OUT", false)
				s.wantState(onlyonce.StateCompleted)
				if s.wantRuns(1); !replayed {
					t.Error("the error is not marked as a replay")
				}
				return
			}
			s.want("a 2", false, answer, replayed, err)
		})
	}
}

// When a person has decided there, the caller must get the response.
func TestServer_ACommandThatAServerInsideHoldsForAPersonHasNoResponseYet(t *testing.T) {
	s := newShop(t, onlyonce.Config{}, grpconce.Config{}, func(ctx context.Context, run int32, note string) (*text, error) {
		if run > 1 {
			return charged(ctx, run, note)
		}
		return nil, heldInside(t)
	}, nil)
	_, _, err := s.call("7", "k", "a")
	s.wantRejection(err, codes.FailedPrecondition, "OUTCOME_UNKNOWN", false)
	s.wantState(onlyonce.StateUnknown)
	answer, replayed, err := s.call("7", "k", "a")
	s.want("a 2", false, answer, replayed, err)
}

// heldInside is the rejection of a server that holds a call for a person, with more details.
func heldInside(t *testing.T, more ...protoadapt.MessageV1) error {
	held, err := status.New(codes.FailedPrecondition, "held").WithDetails(append(more, &errdetails.ErrorInfo{Reason: "OUTCOME_UNKNOWN", Domain: grpconce.Domain})...)
	if err != nil {
		t.Error(err)
	}
	return held.Err()
}

// A handler knows better what a rejection from inside means, and so does a server inside that a repeat can
// find out.
func TestServer_ARejectionFromInsideThatIsMarkedOrAsksForARetryDoesNotLeaveTheOutcomeUnknown(t *testing.T) {
	for name, h := range map[string]handler{
		"final": func(context.Context, int32, string) (*text, error) { return nil, onlyonce.Final(heldInside(t)) },
		"asks for a retry": func(context.Context, int32, string) (*text, error) {
			return nil, heldInside(t, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, onlyonce.Config{HoldUnknown: true}, grpconce.Config{}, h, nil)
			if _, _, err := s.call("7", "k", "a"); err == nil {
				t.Error("it succeeded")
			}
			s.wantState(onlyonce.StateFailed)
		})
	}
}

// A handler that returns the error of a server that it has called would otherwise make its own
// caller's command one that is "still running" for good.
func TestServer_AnErrorThatAsksForARetryIsNotTheResponse(t *testing.T) {
	for _, code := range []codes.Code{codes.Aborted, codes.FailedPrecondition} {
		s := newShop(t, onlyonce.Config{}, grpconce.Config{}, func(ctx context.Context, run int32, note string) (*text, error) {
			if run > 1 {
				return charged(ctx, run, note)
			}
			running, err := status.New(code, "still running").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
			if err != nil {
				t.Error(err)
			}
			return nil, running.Err()
		}, nil)
		_, _, err := s.call("7", "k", "a")
		s.wantRejection(err, code, "", true)
		s.wantState(onlyonce.StateFailed)
		answer, replayed, err := s.call("7", "k", "a")
		s.want("a 2", false, answer, replayed, err)
	}
}

func TestServer_APanicAndAnUnknownErrorLeaveTheOutcomeUnknown(t *testing.T) {
	recovering := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (made any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = status.Error(codes.Internal, "panic")
			}
		}()
		return next(ctx, req)
	}
	for name, h := range map[string]handler{
		"panic": func(context.Context, int32, string) (*text, error) { panic("half done") },
		"unknown": func(context.Context, int32, string) (*text, error) {
			return nil, onlyonce.Unknown(errors.New("no answer"))
		},
		"unknown, with a code that is replayed": func(context.Context, int32, string) (*text, error) {
			return nil, onlyonce.Unknown(status.Error(codes.Aborted, "no answer"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, onlyonce.Config{HoldUnknown: true}, grpconce.Config{}, h, []grpc.UnaryServerInterceptor{recovering})
			if _, _, err := s.call("7", "k", "a"); err == nil {
				t.Error("the call succeeded")
			}
			s.wantState(onlyonce.StateUnknown)
			_, _, err := s.call("7", "k", "a")
			s.wantRejection(err, codes.FailedPrecondition, "OUTCOME_UNKNOWN", false)
			s.wantRuns(1)
		})
	}
}

// A failing store fails as one does whose server speaks gRPC, such as etcd.
type failing struct {
	onlyonce.Store
	claim, settle error // nil: the call does not fail
}

func (f failing) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if f.claim != nil {
		return onlyonce.Record{}, f.claim
	}
	return f.Store.Claim(ctx, c)
}

func (f failing) Settle(ctx context.Context, h onlyonce.Hold, s onlyonce.Settlement) error {
	if f.settle != nil {
		return f.settle
	}
	return f.Store.Settle(ctx, h, s)
}

func TestServer_AStatusThatIsNotForTheClientIsNoRejection(t *testing.T) {
	secret := status.Error(codes.PermissionDenied, "10.0.0.5 denies it")
	fails := func(context.Context, any) (any, error) { return nil, secret }
	for name, c := range map[string]struct {
		store  failing
		code   codes.Code
		reason string
	}{
		"of the store":                          {failing{claim: fmt.Errorf("%w: %w", onlyonce.ErrUnavailable, secret)}, codes.Unavailable, "STORE_UNAVAILABLE"},
		"of an attempt that has lost its lease": {failing{settle: onlyonce.ErrLost}, codes.Aborted, "REQUEST_IN_PROGRESS"},
	} {
		t.Run(name, func(t *testing.T) {
			c.store.Store = memstore.New(memstore.Config{})
			intercept := grpconce.UnaryServerInterceptor(onlyonce.New(c.store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), grpconce.Config{Tenant: func(context.Context) string { return "7" }})
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(grpconce.MetadataKey, "k"))
			_, err := intercept(ctx, wrapperspb.String("a"), &grpc.UnaryServerInfo{FullMethod: method}, fails)
			(&shop{t: t}).wantRejection(err, c.code, c.reason, true)
			if strings.Contains(fmt.Sprint(err), "10.0.0.5") {
				t.Errorf("the client gets %v", err)
			}
		})
	}
}

func TestServer_AFailureThatIsKeptIsRejected(t *testing.T) {
	s := newShop(t, onlyonce.Config{}, grpconce.Config{}, func(context.Context, int32, string) (*text, error) {
		return nil, onlyonce.Final(status.Error(codes.Internal, "broken for good"))
	}, nil)
	if _, _, err := s.call("7", "k", "a"); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	_, _, err := s.call("7", "k", "a")
	s.wantRejection(err, codes.Internal, "COMMAND_FAILED", false)
	s.wantRuns(1)
}

func TestServer_ACommandWhoseClientHasGoneIsFinished(t *testing.T) {
	running, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan onlyonce.Event, 8)
	s := newShop(t, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) { ended <- e }}, grpconce.Config{}, func(ctx context.Context, run int32, note string) (*text, error) {
		close(running)
		<-goOn
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return charged(ctx, run, note)
	}, nil)
	ctx, leave := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "account", "7", grpconce.MetadataKey, "k"))
	go func() {
		<-running
		leave()
	}()
	if err := s.conn.Invoke(ctx, method, wrapperspb.String("a"), &text{}); status.Code(err) != codes.Canceled {
		t.Errorf("the client got %v", err)
	}
	close(goOn)
	if e := <-ended; e.Outcome != onlyonce.OutcomeExecuted {
		t.Errorf("the command ended as %s, %v", e.Outcome, e.Err)
	}
	answer, replayed, err := s.call("7", "k", "a")
	s.want("a 1", true, answer, replayed, err)
}

func TestServer_AStreamWithAKeyIsRejected(t *testing.T) {
	s := newShop(t, onlyonce.Config{}, grpconce.Config{}, charged, nil)
	for key, want := range map[string]codes.Code{"k": codes.InvalidArgument, "": codes.OK} {
		ctx := t.Context()
		if key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, grpconce.MetadataKey, key)
		}
		watch, err := s.conn.NewStream(ctx, &desc.Streams[0], stream)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(watch.SendMsg(wrapperspb.String("a")), watch.CloseSend()); err != nil {
			t.Error(err)
		}
		if err := watch.RecvMsg(&text{}); status.Code(err) != want {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func TestServer_AConfigWithoutATenantPanics(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "Config.Tenant is nil") {
			t.Errorf("the panic is %s", text)
		}
	}()
	grpconce.UnaryServerInterceptor(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), grpconce.Config{})
}

// losing is an interceptor of a client that loses the first n responses.
func losing(n int32) grpc.UnaryClientInterceptor {
	var calls atomic.Int32
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if calls.Add(1) > n {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		_ = invoke(ctx, method, req, &text{}, conn)
		return status.Error(codes.Unavailable, "the connection was cut")
	}
}

func TestClient_RetriesWithTheSameKeyUntilThereIsAResponse(t *testing.T) {
	client := grpc.WithChainUnaryInterceptor(grpconce.UnaryClientInterceptor(grpconce.ClientConfig{Wait: time.Millisecond}), losing(2))
	s := newShop(t, onlyonce.Config{}, grpconce.Config{}, charged, nil, client)
	answer, replayed, err := s.call("7", "", "a")
	s.want("a 1", true, answer, replayed, err)
	s.wantRuns(1)
	answer, replayed, err = s.call("7", "", "a")
	s.want("a 2", false, answer, replayed, err)
}

func TestClient_GivesUpAfterItsAttemptsAndOtherErrors(t *testing.T) {
	retrying := grpconce.UnaryClientInterceptor(grpconce.ClientConfig{Wait: time.Millisecond, Attempts: 2})
	s := newShop(t, onlyonce.Config{}, grpconce.Config{}, charged, nil, grpc.WithChainUnaryInterceptor(retrying, losing(3)))
	if _, _, err := s.call("7", "k", "a"); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	s.wantRuns(1)
	s = newShop(t, onlyonce.Config{}, grpconce.Config{}, func(context.Context, int32, string) (*text, error) {
		return nil, status.Error(codes.Internal, "broken")
	}, nil, grpc.WithUnaryInterceptor(retrying))
	if _, _, err := s.call("7", "k", "a"); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	s.wantRuns(1)
}

func TestClient_GivesNoKeyToOtherMethods(t *testing.T) {
	client := grpc.WithUnaryInterceptor(grpconce.UnaryClientInterceptor(grpconce.ClientConfig{Protects: func(string) bool { return false }}))
	s := newShop(t, onlyonce.Config{}, grpconce.Config{Required: func(string) bool { return true }}, charged, nil, client)
	_, _, err := s.call("7", "", "a")
	s.wantRejection(err, codes.InvalidArgument, "IDEMPOTENCY_KEY_MISSING", false)
}
