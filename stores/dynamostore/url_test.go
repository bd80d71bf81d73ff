package dynamostore_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
)

func TestParseURL_ReadsTheTableAndSettings(t *testing.T) {
	for raw, want := range map[string]dynamostore.URL{
		"dynamodb://eu-central-1":         {Region: "eu-central-1"},
		"dynamodb://eu-central-1/":        {Region: "eu-central-1"},
		"dynamodb://us-gov-west-1/shop_2": {Region: "us-gov-west-1", Config: dynamostore.Config{Table: "shop_2"}},
		"dynamodb://local/shop?endpoint=http://127.0.0.1:8000&accept_risks=ttl,forgotten": {
			Region: "local", Endpoint: "http://127.0.0.1:8000",
			Config: dynamostore.Config{Table: "shop", AcceptRisks: []string{"ttl", "forgotten"}},
		},
		"dynamodb://local?clock_skew=2s&timeout=1m": {Region: "local", Config: dynamostore.Config{ClockSkew: 2 * time.Second, Timeout: time.Minute}},
	} {
		if u, err := dynamostore.ParseURL(raw); err != nil || !reflect.DeepEqual(*u, want) {
			t.Errorf("%s: got %+v, error %v", raw, u, err)
		}
	}
}

func TestParseURL_SaysWhatIsWrongWithoutThePassword(t *testing.T) {
	const form = "write it as dynamodb://REGION/TABLE"
	for raw, want := range map[string]string{
		"":                                                       form,
		"dynamo://eu-central-1":                                  form,
		"dynamodb://":                                            form,
		"dynamodb:///shop":                                       form,
		"dynamodb://key:hunter2@eu-west-1/":                      form,
		"dynamodb://eu-west-1,eu-west-2":                         form,
		"dynamodb://127.0.0.1:8000/shop":                         form,
		"dynamodb://eu-west-1/shop/hunter2":                      "is not the name of a table",
		"dynamodb://eu-west-1/shop?password=hunter2":             "there is no parameter password",
		"dynamodb://eu-west-1/?endpoint=127.0.0.1:8000":          "the endpoint is not a URL",
		"dynamodb://eu-west-1/?endpoint=http://a:hunter2@b":      "the endpoint is not a URL",
		"dynamodb://eu-west-1/?clock_skew=2":                     "write a duration",
		"dynamodb://eu-west-1/?clock_skew=9s":                    "at least twice as long",
		"dynamodb://eu-west-1/?accept_risks=all":                 "there is no risk",
		"dynamodb://eu-west-1/?timeout=1s&timeout=1s&endpoint=x": "is given 2 times",
	} {
		u, err := dynamostore.ParseURL(raw)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, error %v, want %q", raw, u, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error repeats the password: %v", raw, err)
		}
	}
}
