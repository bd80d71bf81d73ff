package lambdaonce_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// With asFunction in its environment, the program of the tests is a Lambda function.
const asFunction = "LAMBDAONCE_TEST_FUNCTION"

func TestMain(m *testing.M) {
	if os.Getenv(asFunction) != "" {
		lambda.Start(wrapped(memstore.New(memstore.Config{}), func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) == "panic" {
				panic("half done")
			}
			w.WriteHeader(201)
		}, httponce.Config{}))
	}
	os.Exit(m.Run())
}

// A runtimeAPI is what AWS offers to the process of a function: the function asks it for the next
// event, and reports the result.
type runtimeAPI struct {
	events  chan []byte
	results chan string // the path and the body
}

func (a *runtimeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		_, what, _ := strings.Cut(r.URL.Path, "/invocation/")
		a.results <- what + " " + string(body)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	select {
	case event := <-a.events:
		h := w.Header()
		h.Set("Lambda-Runtime-Aws-Request-Id", "id")
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10))
		_, _ = w.Write(event)
	case <-r.Context().Done():
	}
}

func TestStart_AFunctionServesEventsOfTheRuntimeUntilAPanic(t *testing.T) {
	api := &runtimeAPI{make(chan []byte, 3), make(chan string, 3)}
	server := httptest.NewServer(api)
	defer server.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	var output bytes.Buffer
	function := exec.CommandContext(ctx, program)
	function.Env = append(os.Environ(), asFunction+"=1", "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"))
	function.Stdout, function.Stderr = &output, &output
	if err := function.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- function.Wait() }()
	fatal := bytes.ReplaceAll(changed(t, "http2", "panic", "body"), []byte(`"idempotency-key":"k"`), []byte(`"idempotency-key":"p"`))
	for _, event := range [][]byte{recorded(t, "http2"), recorded(t, "http2"), fatal} {
		api.events <- event
	}
	var results []string
	for range 2 {
		select {
		case result := <-api.results:
			results = append(results, result)
		case err := <-exited:
			t.Fatalf("the function exited: %v\n%s", err, &output)
		}
	}
	if !strings.HasPrefix(results[0], `id/response {"statusCode":201,`) || strings.Contains(results[0], "Replayed") ||
		!strings.HasPrefix(results[1], `id/response {"statusCode":201,`) || !strings.Contains(results[1], `"Idempotency-Replayed":"true"`) {
		t.Errorf("the results are %q", results)
	}
	if err := <-exited; err == nil || !strings.Contains(<-api.results, "half done") {
		t.Errorf("after a panic, the function exited with %v\n%s", err, &output)
	}
}
