package lambdaonce_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func ExampleHTTPHandler() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	charge := func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charging", lambdaonce.Principal(r))
		w.WriteHeader(http.StatusCreated)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/charges", httponce.Wrap(guard, http.HandlerFunc(charge), httponce.Config{Tenant: lambdaonce.Principal}))
	function := lambdaonce.HTTPHandler(mux) // for lambda.Start

	event, err := os.ReadFile("testdata/url.json")
	for range 2 {
		var response []byte
		if err == nil {
			response, err = function.Invoke(context.Background(), event)
		}
		fmt.Println(len(response) > 0, err)
	}
	// Output:
	// charging iam arn:aws:sts::111122223333:assumed-role/shop/till
	// true <nil>
	// true <nil>
}

func ExampleHandler() {
	type Order struct {
		ID     string `json:"id"`
		Amount int    `json:"amount"`
	}
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	function := lambdaonce.Handler(guard, func(_ context.Context, o Order) (string, error) {
		fmt.Println("charging", o.Amount)
		return "charged", nil
	}, lambdaonce.Config[Order]{Operation: "charge", KeyFields: []string{"/id"}}) // for lambda.Start

	for range 2 {
		result, err := function.Invoke(context.Background(), []byte(`{"id":"o-1","amount":5}`))
		fmt.Println(string(result), err)
	}
	// Output:
	// charging 5
	// "charged" <nil>
	// "charged" <nil>
}

func ExampleSQSHandler() {
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "shipping", Redelivery: 3 * time.Minute})
	function := lambdaonce.SQSHandler(in, func(_ context.Context, m events.SQSMessage) error {
		fmt.Println("shipping", m.Body)
		return nil
	}, lambdaonce.SQSConfig{ReportBatchItemFailures: true}) // for lambda.Start

	event := events.SQSEvent{Records: []events.SQSMessage{{MessageId: "2e1424d4", Body: "order 7"}}}
	for range 2 {
		response, err := function(context.Background(), event)
		fmt.Println(len(response.BatchItemFailures), "failed", err)
	}
	// Output:
	// shipping order 7
	// 0 failed <nil>
	// 0 failed <nil>
}
