package frameworks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// The types of a function that is invoked directly.
type (
	Order struct {
		Order struct {
			ID string `json:"id"`
		} `json:"order"`
	}
	Receipt struct {
		Charge int32 `json:"charge"`
	}
)

func lambdaAPI(guard *onlyonce.Guard, charge http.HandlerFunc) lambda.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/charges", httponce.Wrap(guard, charge, httponce.Config{Tenant: lambdaonce.Principal}))
	return lambdaonce.HTTPHandler(mux) // for lambda.Start
}

// ofLambda returns a client of a function, through an HTTP API.
func ofLambda(t *testing.T, function lambda.Handler) client {
	return func(path, key, body string) reply {
		t.Helper()
		event := events.APIGatewayV2HTTPRequest{Version: "2.0", RouteKey: "$default", RawPath: path, Headers: map[string]string{"content-type": "application/json"}, Body: body}
		event.RequestContext.HTTP.Method = "POST"
		event.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{Lambda: map[string]any{"principalId": "acme"}}
		if key != "" {
			event.Headers["idempotency-key"] = key
		}
		var response events.APIGatewayV2HTTPResponse
		payload, err := json.Marshal(event)
		if err == nil {
			payload, err = function.Invoke(t.Context(), payload)
		}
		if err == nil {
			err = json.Unmarshal(payload, &response)
		}
		if err != nil {
			t.Fatal(err)
		}
		return reply{response.StatusCode, response.Body, response.Headers["Idempotency-Replayed"] == "true"}
	}
}

func TestLambda_AnAPI(t *testing.T) {
	wire := func(s *shop) client { return ofLambda(t, lambdaAPI(s.guard, s.charge)) }
	keepsThePromise(t, wire)
	namesTheRoute(t, wire, "POST /accounts/{id}/charges")
}

func lambdaFunction(guard *onlyonce.Guard, charge func(context.Context, Order) (Receipt, error)) lambda.Handler {
	return lambdaonce.Handler(guard, charge, lambdaonce.Config[Order]{
		Operation: "charge",
		KeyFields: []string{"/order/id"},
	}) // for lambda.Start
}

func TestLambda_ADirectInvocation(t *testing.T) {
	s := newShop()
	function := lambdaFunction(s.guard, func(context.Context, Order) (Receipt, error) { return Receipt{s.runs.Add(1)}, nil })
	for _, want := range []string{"a 1", "a 1", "b 2"} {
		id, charge, _ := strings.Cut(want, " ")
		got, err := function.Invoke(t.Context(), []byte(`{"order":{"id":"`+id+`"}}`))
		if string(got) != `{"charge":`+charge+`}` || err != nil {
			t.Errorf("got %s, %v", got, err)
		}
	}
	if _, err := function.Invoke(t.Context(), []byte(`{}`)); !strings.Contains(fmt.Sprint(err), "the event has no key") {
		t.Errorf("got %v", err)
	}
}

func lambdaQueue(store onlyonce.Store, ship func(context.Context, events.SQSMessage) error) lambdaonce.SQSFunc {
	in := inbox.New(store, inbox.Config{Consumer: "shipping", Redelivery: 3 * time.Minute})     // the queue's visibility timeout
	return lambdaonce.SQSHandler(in, ship, lambdaonce.SQSConfig{ReportBatchItemFailures: true}) // for lambda.Start
}

func TestLambda_AQueue(t *testing.T) {
	s := newShop()
	function := lambdaQueue(s.store, func(context.Context, events.SQSMessage) error {
		s.runs.Add(1)
		return nil
	})
	for range 5 {
		response, err := function(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: "x"}}})
		if len(response.BatchItemFailures) > 0 || err != nil {
			t.Errorf("got %+v, %v", response, err)
		}
	}
	if n := s.runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}
