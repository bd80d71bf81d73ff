package grpconce_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/grpconce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
)

// A txShop is a shop whose method runs in a transaction.
type txShop struct {
	shop
	store *adaptertest.Store
	guard *onlyonce.TxGuard[adaptertest.Tx]
	ran   int // runs of the handler in a transaction
}

// newTxShop serves a txShop until the end of the test. Its handler puts the note into a row, and
// then calls h.
func newTxShop(t *testing.T, cfg grpconce.Config, h func(ctx context.Context, run int) error, intercept func(*txShop) []grpc.UnaryServerInterceptor) *txShop {
	t.Helper()
	s := &txShop{store: adaptertest.NewStore()}
	s.shop = shop{t: t, store: s.store.Store}
	s.guard = onlyonce.NewTx(s.store, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	cfg.Tenant = accountOf
	charge := grpconce.WrapTx(s.guard, func(ctx context.Context, req *text, tx adaptertest.Tx) (*text, error) {
		s.ran++
		tx["order"] = req.GetValue()
		if h != nil {
			if err := h(ctx, s.ran); err != nil {
				return nil, err
			}
		}
		return wrapperspb.String(fmt.Sprint(req.GetValue(), " ", s.ran)), nil
	}, cfg)
	s.handle = func(ctx context.Context, _ int32, note string) (*text, error) {
		return charge(ctx, wrapperspb.String(note))
	}
	l := bufconn.Listen(1 << 16)
	var interceptors []grpc.UnaryServerInterceptor
	if intercept != nil {
		interceptors = intercept(s)
	}
	s.serve(l, interceptors...)
	s.dial("passthrough:shop", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	return s
}

func (s *txShop) wantRow(want string, runs int) {
	s.t.Helper()
	if got := s.store.Row("order"); got != want || s.ran != runs {
		s.t.Errorf("the row is %q after %d runs, want %q after %d", got, s.ran, want, runs)
	}
}

func TestWrapTx_RowsAndResponseAreCommittedTogether(t *testing.T) {
	for name, twice := range map[string]bool{"at once": false, "after a serialization failure": true} {
		t.Run(name, func(t *testing.T) {
			s := newTxShop(t, grpconce.Config{}, nil, nil)
			s.store.Twice = twice
			first, replayed, err := s.call("7", "k", "a")
			s.want(first, false, first, replayed, err)
			s.wantState(onlyonce.StateCompleted)
			runs := s.ran
			s.wantRow("a", runs)
			again, replayed, err := s.call("7", "k", "a")
			s.want(first, true, again, replayed, err)
			s.wantRow("a", runs)
			_, _, err = s.call("7", "k", "b")
			s.wantRejection(err, codes.FailedPrecondition, "IDEMPOTENCY_KEY_REUSED", false)
			if _, _, err = s.call("7", "", "b"); err != nil {
				t.Error(err)
			}
			s.wantRow("b", 2*runs)
		})
	}
}

func TestWrapTx_AnErrorRollsBackAndARepeatRunsAgain(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.NotFound} {
		t.Run(code.String(), func(t *testing.T) {
			s := newTxShop(t, grpconce.Config{}, func(_ context.Context, run int) error {
				if run <= 2 {
					return status.Error(code, "no")
				}
				return nil
			}, nil)
			for _, key := range []string{"", "k"} {
				if _, _, err := s.call("7", key, "a"); status.Code(err) != code {
					t.Errorf("with the key %q: %v", key, err)
				}
			}
			s.wantState(onlyonce.StateFailed)
			s.wantRow("", 2)
			answer, replayed, err := s.call("7", "k", "a")
			s.want("a 3", false, answer, replayed, err)
			s.wantRow("a", 3)
		})
	}
}

func TestWrapTx_RejectsACallWithoutAKeyThatIsRequired(t *testing.T) {
	s := newTxShop(t, grpconce.Config{Required: func(string) bool { return true }}, nil, nil)
	_, _, err := s.call("7", "", "a")
	s.wantRejection(err, codes.InvalidArgument, "IDEMPOTENCY_KEY_MISSING", false)
	s.wantRow("", 0)
}

func TestWrapTx_AMethodThatTheInterceptorProtectsTooIsRejected(t *testing.T) {
	protects := true
	s := newTxShop(t, grpconce.Config{}, nil, func(s *txShop) []grpc.UnaryServerInterceptor {
		return []grpc.UnaryServerInterceptor{grpconce.UnaryServerInterceptor(s.guard.Guard, grpconce.Config{
			Tenant: accountOf, Protects: func(string) bool { return protects },
		})}
	})
	if _, _, err := s.call("7", "k", "a"); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "Config.Protects") {
		t.Error(err)
	}
	s.wantRow("", 0)
	protects = false
	for repeat := range 2 {
		answer, replayed, err := s.call("7", "k", "a")
		s.want("a 1", repeat > 0, answer, replayed, err)
	}
}

// A nameless is the stream of a call whose method is unknown, as that of grpc-gateway is if it calls
// a service in its own process.
type nameless struct{ grpc.ServerTransportStream }

func (nameless) Method() string               { return "" }
func (nameless) SetHeader(metadata.MD) error  { return nil }
func (nameless) SetTrailer(metadata.MD) error { return nil }

func TestWrapTx_ACallWhoseMethodIsUnknownNeedsAnOperation(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(grpconce.MetadataKey, "k", "account", "7"))
	for name, ctx := range map[string]context.Context{
		"outside of a call": ctx,
		"of a gateway":      grpc.NewContextWithServerTransportStream(ctx, nameless{}),
	} {
		t.Run(name, func(t *testing.T) {
			guard := onlyonce.NewTx(adaptertest.NewStore(), onlyonce.Config{Observer: onlyonce.DiscardEvents})
			do := func(method string, cfg grpconce.Config) (string, error) {
				cfg.Tenant = accountOf
				made, err := grpconce.WrapTx(guard, func(context.Context, *text, adaptertest.Tx) (*text, error) {
					return wrapperspb.String(method), nil
				}, cfg)(ctx, wrapperspb.String("a"))
				return made.GetValue(), err
			}
			for _, method := range []string{"capture", "cancel"} {
				for _, operation := range []func(context.Context, string) string{nil, func(_ context.Context, fullMethod string) string { return fullMethod }} {
					if got, err := do(method, grpconce.Config{Operation: operation}); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "Config.Operation") {
						t.Errorf("%s got %q, %v", method, got, err)
					}
				}
				if got, err := do(method, grpconce.Config{Operation: func(context.Context, string) string { return method }}); got != method || err != nil {
					t.Errorf("%s with an operation got %q, %v", method, got, err)
				}
			}
		})
	}
}

func TestWrapTx_PanicsOnAMistakenSetting(t *testing.T) {
	guard := onlyonce.NewTx(adaptertest.NewStore(), onlyonce.Config{})
	h := func(context.Context, *text, adaptertest.Tx) (*text, error) { return nil, nil }
	for want, wrap := range map[string]func(){
		"Config.Tenant is nil":                  func() { grpconce.WrapTx(guard, h, grpconce.Config{}) },
		"the TxGuard or the handler is nil":     func() { grpconce.WrapTx[adaptertest.Tx](nil, h, grpconce.Config{Tenant: accountOf}) },
		"WrapTx: the TxGuard or the handler is": func() { grpconce.WrapTx[adaptertest.Tx, *text, *text](guard, nil, grpconce.Config{Tenant: accountOf}) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "grpconce: WrapTx: ") || !strings.Contains(text, want) {
					t.Errorf("the panic is %s", text)
				}
			}()
			wrap()
		}()
	}
}

// setsMetadata is a handler that sets a header and a trailer, with its run.
func setsMetadata(ctx context.Context, run int) error {
	header := metadata.Pairs("location", fmt.Sprint("/charges/", run), "receipt-bin", "\xff\x00", "x-access-token", "secret")
	if err := grpc.SetHeader(ctx, header); err != nil {
		return err
	}
	if err := grpc.SendHeader(ctx, metadata.Pairs("location", "/charges")); err != nil {
		return err
	}
	if grpc.SetHeader(ctx, header) == nil {
		return status.Error(codes.DataLoss, "the header is set after it was sent")
	}
	return grpc.SetTrailer(ctx, metadata.Pairs("cost", fmt.Sprint(run)))
}

// wantMetadata calls the method, and fails unless the header and the trailer are those of a run.
func (s *shop) wantMetadata(key string, run int, token string, replayed bool) {
	s.t.Helper()
	ctx := metadata.AppendToOutgoingContext(s.t.Context(), "account", "7")
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, grpconce.MetadataKey, key)
	}
	var header, trailer metadata.MD
	err := s.conn.Invoke(ctx, method, wrapperspb.String("a"), &text{}, grpc.Header(&header), grpc.Trailer(&trailer))
	got := fmt.Sprintf("%q %q %q %q %v", header.Get("location"), header.Get("receipt-bin"), header.Get("x-access-token"), trailer.Get("cost"), len(header.Get(grpconce.MetadataReplayed)) > 0)
	tokens := "[]"
	if token != "" {
		tokens = fmt.Sprintf("[%q]", token)
	}
	want := fmt.Sprintf(`["/charges/%d" "/charges"] ["\xff\x00"] %s ["%d"] %v`, run, tokens, run, replayed)
	if got != want {
		s.t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestServer_TheMetadataOfAHandlerIsReplayed(t *testing.T) {
	for name, fails := range map[string]error{"with a response": nil, "with an error": status.Error(codes.NotFound, "no")} {
		t.Run(name, func(t *testing.T) {
			h := func(ctx context.Context, run int32, note string) (*text, error) {
				if err := setsMetadata(ctx, int(run)); err != nil {
					return nil, err
				}
				if fails != nil {
					return nil, fails
				}
				return charged(ctx, run, note)
			}
			s := newShop(t, onlyonce.Config{}, grpconce.Config{}, h, nil)
			s.wantMetadata("k", 1, "secret", false)
			s.wantMetadata("k", 1, "", true)
			s.wantMetadata("", 2, "secret", false)
			s = newShop(t, onlyonce.Config{}, grpconce.Config{ReplayMetadata: func(name string, byDefault bool) bool {
				return byDefault || name == "x-access-token"
			}}, h, nil)
			s.wantMetadata("k", 1, "secret", false)
			s.wantMetadata("k", 1, "secret", true)
		})
	}
}

func TestServer_MetadataThatLooksLikeACredentialIsNotReplayedByDefault(t *testing.T) {
	names := map[string]bool{
		"location": true, "author": true, "monkey": true, "x-receipt-bin": true,
		"x-session": false, "x-session-bin": false, "x-auth": false, "x-jwt-assertion": false, "x-otp": false, "x-csrf": false,
		"www-authenticate": false, "set-cookie": false, "refresh-token": false, "x-api-key": false, "x-signature": false,
		"date": false, "traceparent": false, "traceresponse": false, "x-b3-traceid": false, "grpc-trace-bin": false,
	}
	defaults := map[string]bool{}
	s := newShop(t, onlyonce.Config{}, grpconce.Config{ReplayMetadata: func(name string, byDefault bool) bool {
		defaults[name] = byDefault
		return byDefault
	}}, func(ctx context.Context, run int32, note string) (*text, error) {
		md := metadata.MD{}
		for name := range names {
			md.Set(name, "value")
		}
		if err := grpc.SetHeader(ctx, md); err != nil {
			return nil, err
		}
		return charged(ctx, run, note)
	}, nil)
	if _, _, err := s.call("7", "k", "a lamp"); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(defaults, names) {
		t.Errorf("by default: %v, want %v", defaults, names)
	}
}

func TestServer_TheMetadataOfAFailedHandlerIsSent(t *testing.T) {
	s := newShop(t, onlyonce.Config{}, grpconce.Config{}, func(ctx context.Context, run int32, note string) (*text, error) {
		if err := setsMetadata(ctx, int(run)); err != nil {
			return nil, err
		}
		return nil, status.Error(codes.Internal, "broken")
	}, nil)
	s.wantMetadata("k", 1, "secret", false)
	s.wantMetadata("k", 2, "secret", false)
}

func TestWrapTx_OnlyTheMetadataOfTheRunThatCountsIsSent(t *testing.T) {
	s := newTxShop(t, grpconce.Config{}, setsMetadata, nil)
	s.store.Twice = true
	s.wantMetadata("k", 2, "secret", false)
	s.wantMetadata("k", 2, "", true)
	s.wantMetadata("", 4, "secret", false)
}

func TestWrapTx_ACommitThatGetsNoResponseIsRepeatedWithItsKeyOnly(t *testing.T) {
	store := adaptertest.NewStore()
	store.Commit = onlyonce.ErrInDoubt
	charge := grpconce.WrapTx(onlyonce.NewTx(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), func(context.Context, *text, adaptertest.Tx) (*text, error) {
		return wrapperspb.String("charged"), nil
	}, grpconce.Config{Tenant: func(context.Context) string { return "7" }, Operation: func(context.Context, string) string { return "charge" }})
	s := shop{t: t}
	_, err := charge(t.Context(), wrapperspb.String("a"))
	s.wantRejection(err, codes.FailedPrecondition, "OUTCOME_UNKNOWN", false)
	_, err = charge(metadata.NewIncomingContext(t.Context(), metadata.Pairs(grpconce.MetadataKey, "k")), wrapperspb.String("a"))
	s.wantRejection(err, codes.FailedPrecondition, "OUTCOME_UNKNOWN", true)
}
