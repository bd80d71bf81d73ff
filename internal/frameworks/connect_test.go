package frameworks_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/connectonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The contents of a generated package.
const chargeProcedure = "/shop.v1.ShopService/Charge"

type (
	chargeRequest  = connect.Request[wrapperspb.StringValue]
	chargeResponse = connect.Response[wrapperspb.StringValue]
)

func connectMux(guard *onlyonce.Guard, path string, service http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(path, connectonce.Wrap(guard, service, httponce.Config{Tenant: accountOf}))
	return mux
}

// connectClients returns a client of each protocol, by its name.
func connectClients(t *testing.T, h http.Handler) map[string]*connect.Client[wrapperspb.StringValue, wrapperspb.StringValue] {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	clients := make(map[string]*connect.Client[wrapperspb.StringValue, wrapperspb.StringValue])
	for name, option := range map[string]connect.ClientOption{
		"connect": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		clients[name] = connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+chargeProcedure, option)
	}
	return clients
}

// connectCharge fails with the code that it is asked for the first time.
func (s *shop) connectCharge(code connect.Code) http.Handler {
	return connect.NewUnaryHandler(chargeProcedure, func(context.Context, *chargeRequest) (*chargeResponse, error) {
		if s.runs.Add(1) == 1 && code != 0 {
			return nil, connect.NewError(code, errors.New("no"))
		}
		return connect.NewResponse(wrapperspb.String("charged")), nil
	})
}

func call(client *connect.Client[wrapperspb.StringValue, wrapperspb.StringValue], text string) (answer string, replayed bool, err error) {
	req := connect.NewRequest(wrapperspb.String(text))
	req.Header().Set("Idempotency-Key", "k")
	resp, err := client.CallUnary(context.Background(), req)
	if err != nil {
		var failed *connect.Error
		if errors.As(err, &failed) {
			replayed = failed.Meta().Get("Idempotency-Replayed") == "true"
		}
		return "", replayed, err
	}
	return resp.Msg.GetValue(), resp.Header().Get("Idempotency-Replayed") == "true", nil
}

// eachProtocol runs a test with a client of each protocol, and a shop of its own.
func eachProtocol(t *testing.T, code connect.Code, wire func(*onlyonce.Guard, http.Handler) http.Handler, test func(t *testing.T, s *shop, call func(text string) (string, bool, error))) {
	for _, protocol := range []string{"connect", "gRPC", "gRPC-Web"} {
		t.Run(protocol, func(t *testing.T) {
			s := newShop()
			client := connectClients(t, wire(s.guard, s.connectCharge(code)))[protocol]
			test(t, s, func(text string) (string, bool, error) { return call(client, text) })
		})
	}
}

func rightConnect(guard *onlyonce.Guard, service http.Handler) http.Handler {
	return connectMux(guard, "/shop.v1.ShopService/", service)
}

func TestConnect_ReplaysAResponse(t *testing.T) {
	eachProtocol(t, 0, rightConnect, func(t *testing.T, s *shop, call func(string) (string, bool, error)) {
		for repeat := range 3 {
			if answer, replayed, err := call("a"); answer != "charged" || err != nil || replayed != (repeat > 0) {
				t.Errorf("call %d: %q, replayed %v, %v", repeat, answer, replayed, err)
			}
		}
		if s.runs.Load() != 1 || !s.operations()[chargeProcedure] {
			t.Errorf("%d runs of %v", s.runs.Load(), s.operations())
		}
	})
}

func TestConnect_RunsAnInternalErrorAgain(t *testing.T) {
	for _, code := range []connect.Code{connect.CodeInternal, connect.CodeUnavailable, connect.CodeUnknown, connect.CodeDeadlineExceeded} {
		eachProtocol(t, code, rightConnect, func(t *testing.T, s *shop, call func(string) (string, bool, error)) {
			if _, replayed, err := call("a"); connect.CodeOf(err) != code || replayed {
				t.Errorf("the first call: %v, replayed %v", err, replayed)
			}
			if answer, replayed, err := call("a"); answer != "charged" || replayed || err != nil {
				t.Errorf("the second call: %q, replayed %v, %v", answer, replayed, err)
			}
		})
	}
}

func TestConnect_ReplaysAnErrorOfTheRequest(t *testing.T) {
	for _, code := range []connect.Code{connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeFailedPrecondition, connect.CodeAlreadyExists} {
		eachProtocol(t, code, rightConnect, func(t *testing.T, s *shop, call func(string) (string, bool, error)) {
			for repeat := range 2 {
				if _, replayed, err := call("a"); connect.CodeOf(err) != code || replayed != (repeat > 0) {
					t.Errorf("call %d: %v, replayed %v", repeat, err, replayed)
				}
			}
			if n := s.runs.Load(); n != 1 {
				t.Errorf("%d runs", n)
			}
		})
	}
}

func TestConnect_RejectsInTheProtocolOfTheRequest(t *testing.T) {
	eachProtocol(t, 0, rightConnect, func(t *testing.T, s *shop, call func(string) (string, bool, error)) {
		if _, _, err := call("a"); err != nil {
			t.Error(err)
		}
		if _, _, err := call("b"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("another request under the key: %v", err)
		}
		if n := s.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func plainConnect(guard *onlyonce.Guard, service http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/shop.v1.ShopService/", httponce.Wrap(guard, service, httponce.Config{Tenant: accountOf}))
	return mux
}

func TestConnect_WithoutTheAdapterTheOutcomeIsRightAndARejectionIsNot(t *testing.T) {
	eachProtocol(t, connect.CodeInternal, plainConnect, func(t *testing.T, s *shop, call func(string) (string, bool, error)) {
		if _, _, err := call("a"); connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("the first call got %v", err)
		}
		if answer, replayed, err := call("a"); answer != "charged" || replayed || err != nil {
			t.Errorf("the second call got %q, replayed %v, %v", answer, replayed, err)
		}
		if _, _, err := call("b"); connect.CodeOf(err) != connect.CodeUnknown {
			t.Errorf("a rejection arrives as %v", err)
		}
	})
}
