package dynamostore_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynamofake"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// A recorder notes the operations of the requests that pass through it.
type recorder struct {
	mu         sync.Mutex
	operations []string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	r.mu.Lock()
	r.operations = append(r.operations, operation)
	r.mu.Unlock()
	return http.DefaultTransport.RoundTrip(request)
}

// taken returns the operations since it was last called.
func (r *recorder) taken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := strings.Join(r.operations, " ")
	r.operations = nil
	return taken
}

func TestStore_ACallSendsAsFewRequestsAsItCan(t *testing.T) {
	server := dynamofake.Start()
	t.Cleanup(server.Close)
	recorded := new(recorder)
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String("http://" + server.Address), HTTPClient: &http.Client{Transport: recorded},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	})
	migrate(t, client, dynamostore.Config{})
	s, another := open(t, client, dynamostore.Config{}), open(t, client, dynamostore.Config{})
	var r onlyonce.Record
	var key string
	claim := func(s *dynamostore.Store) func() error {
		return func() (err error) { r, err = s.Claim(t.Context(), hazard.Claim(key)); return err }
	}
	steps := []struct {
		name string
		call func() error
		want string
	}{
		{"claim", claim(s), "PutItem"},
		{"settlement", func() error { return s.Settle(t.Context(), hazard.Hold(r), hazard.Completed) }, "PutItem"},
		{"repeat", claim(s), "GetItem"},
		{"repeat by another process", claim(another), "PutItem"}, // whose condition fails, and which returns the record
	}
	fewest := make([]string, len(steps))
	for n := range 10 { // once a second, a claim also looks whether the table has forgotten
		key = "k" + strconv.Itoa(n)
		for i, step := range steps {
			recorded.taken()
			if err := step.call(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if taken := recorded.taken(); n == 0 || len(taken) < len(fewest[i]) {
				fewest[i] = taken
			}
		}
	}
	for i, step := range steps {
		if fewest[i] != step.want {
			t.Errorf("%s: the requests %q were sent, want %q", step.name, fewest[i], step.want)
		}
	}
}
