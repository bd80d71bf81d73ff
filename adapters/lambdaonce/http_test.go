package lambdaonce_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce/internal/gateway"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func accountOf(r *http.Request) string {
	return strings.TrimPrefix(lambdaonce.Principal(r), "lambda ")
}

type charge struct {
	Note string `json:"note"`
}

// perform binds the body and does what the suite asks for.
func perform(app adaptertest.App, w http.ResponseWriter, r *http.Request) (string, error) {
	var first, second charge
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err := errors.Join(err, json.Unmarshal(body, &first), json.NewDecoder(r.Body).Decode(&second)); err != nil || first != second {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return "", nil
		}
	}
	respond := func(status int, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	act := app.Handle(adaptertest.Call{Note: first.Note, Context: r.Context(), Request: r, Respond: respond})
	switch {
	case act.Panic != nil:
		panic(act.Panic)
	case act.Err != nil && app.Tx == nil:
		http.Error(w, act.Err.Error(), http.StatusInternalServerError)
	case act.Err != nil:
		return first.Note, act.Err
	case act.Chunks != nil:
		for _, chunk := range act.Chunks {
			_, _ = io.WriteString(w, chunk)
			_ = http.NewResponseController(w).Flush()
		}
	default:
		respond(act.Status, act.Body)
	}
	return first.Note, nil
}

func recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				http.Error(w, fmt.Sprint(p), http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func newApp(app adaptertest.App) http.Handler {
	app.Config.Tenant = accountOf
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = perform(app, w, r) })
	if app.Recovery == adaptertest.Inside {
		h = recovering(h)
	}
	handle := h
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Inner", app.Inner())
		handle.ServeHTTP(w, r)
	})
	once := httponce.Wrap(app.Guard, inner, app.Config)
	if app.Tx != nil {
		once = httponce.WrapTx(app.Tx, func(w http.ResponseWriter, r *http.Request, tx adaptertest.Tx) error {
			note, err := perform(app, w, r)
			tx["order"] = note
			return err
		}, app.Config)
	}
	h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", app.Outer())
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		once.ServeHTTP(w, r)
	})
	if app.Recovery == adaptertest.Outside {
		h = recovering(h)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/charges", h)
	mux.Handle("GET /accounts/{id}/charges", h)
	return mux
}

func TestHTTPHandler_KeepsTheRulesOfAdapters(t *testing.T) {
	for _, kind := range []gateway.Kind{gateway.REST, gateway.HTTPv2} {
		t.Run(string(kind), func(t *testing.T) {
			adaptertest.Run(t, adaptertest.Adapter{
				New: func(_ *testing.T, app adaptertest.App) http.Handler {
					return gateway.New(lambdaonce.HTTPHandler(newApp(app)), kind)
				},
				Route: "/accounts/{id}/charges", NoStream: true,
			})
		})
	}
}

// recorded returns an event of testdata.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	event, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// A reply is the response to an event, in whatever format.
type reply = events.APIGatewayV2HTTPResponse

func invoke(t *testing.T, h lambda.Handler, event []byte) reply {
	t.Helper()
	payload, err := h.Invoke(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, payload)
}

func decode(t *testing.T, payload []byte) (r reply) {
	t.Helper()
	if err := json.Unmarshal(payload, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func quietGuard(store onlyonce.Store, cfg onlyonce.Config) *onlyonce.Guard {
	cfg.Observer = onlyonce.DiscardEvents
	return onlyonce.New(store, cfg)
}

// wrapped returns a function that runs h once for each key.
func wrapped(store onlyonce.Store, h http.HandlerFunc, cfg httponce.Config) lambda.Handler {
	cfg.Tenant = httponce.SingleTenant
	return lambdaonce.HTTPHandler(httponce.Wrap(quietGuard(store, onlyonce.Config{HoldUnknown: true}), h, cfg))
}

func wantRecord(t *testing.T, store onlyonce.Store, id onlyonce.ID, want onlyonce.State) {
	t.Helper()
	rec, err := store.Lookup(t.Context(), id)
	if err != nil || rec.State != want {
		t.Errorf("the record is %+v, %v, want %s", rec, err, want)
	}
}

var chargeID = onlyonce.ID{Tenant: "single", Operation: "POST /accounts/{id}/charges", Key: "k"}

func TestHTTPHandler_WithoutARouterTheOperationIsTheRouteOfTheAPI(t *testing.T) {
	for _, name := range []string{"rest", "http1", "http2"} {
		store := memstore.New(memstore.Config{})
		h := wrapped(store, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }, httponce.Config{})
		if got := invoke(t, h, recorded(t, name)); got.StatusCode != 201 {
			t.Errorf("%s: got %+v", name, got)
		}
		wantRecord(t, store, chargeID, onlyonce.StateCompleted)
	}
	for _, noRoute := range [][]byte{recorded(t, "url"), changed(t, "rest", "/accounts/{proxy+}", "resource")} {
		store := memstore.New(memstore.Config{})
		invoke(t, wrapped(store, func(http.ResponseWriter, *http.Request) {}, httponce.Config{}), noRoute)
		wantRecord(t, store, onlyonce.ID{Tenant: "single", Operation: "POST /accounts/7/8/charges", Key: "k"}, onlyonce.StateCompleted)
	}
}

func TestHTTPHandler_AStageThatIsInThePathCanBeStripped(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /accounts/{id}/charges", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("id")) })
	if got := invoke(t, lambdaonce.HTTPHandler(http.StripPrefix("/live", mux)), recorded(t, "http2")); got.StatusCode != 200 || got.Body != "7%" {
		t.Errorf("got %+v", got)
	}
}

func TestHTTPHandler_AResponseHasTheFormatOfItsEvent(t *testing.T) {
	h := lambdaonce.HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Vary"] = []string{"Accept", "Origin"}
		h["Set-Cookie"] = []string{"a=1", "b=2"}
		h.Set("Content-Type", "text/html")
		h.Set("Content-Length", "3")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
		h.Set("X-Late", "1")
		_, _ = io.WriteString(w, "<é>")
	}))
	for name, want := range map[string]string{
		"rest":  `{"statusCode":202,"headers":null,"multiValueHeaders":{"Content-Type":["text/html"],"Set-Cookie":["a=1","b=2"],"Vary":["Accept","Origin"]},"body":"<é>"}`,
		"http2": `{"statusCode":202,"headers":{"Content-Type":"text/html","Vary":"Accept, Origin"},"multiValueHeaders":null,"body":"<é>","cookies":["a=1","b=2"]}`,
	} {
		if got, err := h.Invoke(t.Context(), recorded(t, name)); string(got) != want || err != nil {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
}

func TestHTTPHandler_ABodyIsTextOrBase64(t *testing.T) {
	for _, c := range []struct {
		write    func(w http.ResponseWriter)
		mime     string
		body     string
		isBase64 bool
	}{
		{func(w http.ResponseWriter) { _, _ = io.WriteString(w, "plain") }, "text/plain; charset=utf-8", "plain", false},
		{func(w http.ResponseWriter) { _, _ = w.Write([]byte("\x89PNG\r\n\x1a\n")) }, "image/png", "iVBORw0KGgo=", true},
		{func(w http.ResponseWriter) { w.Header()["Content-Type"] = nil; _, _ = io.WriteString(w, "plain") }, "", "plain", false},
		{func(w http.ResponseWriter) { w.WriteHeader(204); _, _ = io.WriteString(w, "dropped") }, "", "", false},
		{func(http.ResponseWriter) {}, "", "", false},
	} {
		h := lambdaonce.HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.write(w) }))
		if got := invoke(t, h, recorded(t, "url")); got.Headers["Content-Type"] != c.mime || got.Body != c.body || got.IsBase64Encoded != c.isBase64 {
			t.Errorf("got %+v, want %+v", got, c)
		}
	}
	head := bytes.ReplaceAll(recorded(t, "url"), []byte(`"method": "POST"`), []byte(`"method": "HEAD"`))
	if got := invoke(t, lambdaonce.HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })), head); got.StatusCode != 200 || got.Body != "" {
		t.Errorf("a HEAD got %+v", got)
	}
}

func TestHTTPHandler_AResponseThatIsTooLargeIsAProblemAndItsOutcomeStays(t *testing.T) {
	long := strings.Repeat("long ", 7<<20/5)
	for name, c := range map[string]struct {
		cfg   httponce.Config
		again int
	}{
		"a body that is not stored": {httponce.Config{}, 201},
		"a body that is stored":     {httponce.Config{MaxResponse: 8 << 20}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			store, runs := memstore.New(memstore.Config{}), 0
			h := wrapped(store, func(w http.ResponseWriter, _ *http.Request) {
				runs++
				w.WriteHeader(201)
				_, _ = io.WriteString(w, long)
			}, c.cfg)
			first, again := invoke(t, h, recorded(t, "http2")), invoke(t, h, recorded(t, "http2"))
			if first.StatusCode != 500 || !strings.Contains(first.Body, lambdaonce.CodeResponseTooLarge) || first.Headers["Content-Type"] != "application/problem+json" {
				t.Errorf("got %d %v %.200s", first.StatusCode, first.Headers, first.Body)
			}
			if again.StatusCode != c.again || runs != 1 {
				t.Errorf("the repeat got %d %v %.200s, after %d runs", again.StatusCode, again.Headers, again.Body, runs)
			}
			wantRecord(t, store, chargeID, onlyonce.StateCompleted)
		})
	}
}

func TestHTTPHandler_APanicContinuesAndLeavesTheOutcomeUnknown(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := wrapped(store, func(http.ResponseWriter, *http.Request) { panic("half done") }, httponce.Config{})
	wantPanic(t, "half done", func() { _, _ = h.Invoke(t.Context(), recorded(t, "http2")) })
	wantRecord(t, store, chargeID, onlyonce.StateUnknown)
	if got := invoke(t, h, recorded(t, "http2")); got.StatusCode != 409 || !strings.Contains(got.Body, httponce.CodeOutcomeUnknown) {
		t.Errorf("the repeat got %+v", got)
	}
}

// A handler that panics with http.ErrAbortHandler only breaks off its response.
func TestHTTPHandler_AResponseThatIsAbortedIsAnError(t *testing.T) {
	h := lambdaonce.HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a part")
		panic(http.ErrAbortHandler)
	}))
	if got, err := h.Invoke(t.Context(), recorded(t, "rest")); got != nil || err == nil {
		t.Errorf("got %s, %v", got, err)
	}
}

func wantPanic(t *testing.T, part string, f func()) {
	t.Helper()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, part) {
			t.Errorf("the panic is %s, want %s", text, part)
		}
	}()
	f()
}

func TestHTTPHandler_ContextsEndBeforeTheInvocationIsKilled(t *testing.T) {
	for timeout, ends := range map[time.Duration]time.Duration{30 * time.Second: 29 * time.Second, 2 * time.Second: 1500 * time.Millisecond} {
		for _, keyed := range []bool{true, false} {
			t.Run(fmt.Sprint(timeout, keyed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					invocation, kill := context.WithTimeout(t.Context(), timeout)
					defer kill()
					store := memstore.New(memstore.Config{})
					h := wrapped(store, func(w http.ResponseWriter, r *http.Request) {
						began := time.Now()
						if <-r.Context().Done(); time.Since(began) != ends || invocation.Err() != nil {
							t.Errorf("the context ended after %v, that of the invocation: %v", time.Since(began), invocation.Err())
						}
						http.Error(w, "too late", http.StatusServiceUnavailable)
					}, httponce.Config{})
					event := recorded(t, "http2")
					if !keyed {
						event = bytes.ReplaceAll(event, []byte("idempotency-key"), []byte("x-key"))
					}
					payload, err := h.Invoke(invocation, event)
					if got := decode(t, payload); err != nil || got.StatusCode != 503 {
						t.Errorf("got %+v, %v", got, err)
					}
					if keyed {
						wantRecord(t, store, chargeID, onlyonce.StateUnknown)
					}
				})
			})
		}
	}
}

func TestHTTPHandler_ARepeatThatWaitsGetsAResponseInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		guard := quietGuard(memstore.New(memstore.Config{}), onlyonce.Config{Wait: time.Hour})
		h := lambdaonce.HTTPHandler(httponce.Wrap(guard, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-goOn }), httponce.Config{Tenant: httponce.SingleTenant}))
		ended := make(chan error)
		go func() {
			_, err := h.Invoke(context.Background(), recorded(t, "http2"))
			ended <- err
		}()
		synctest.Wait()
		invocation, kill := context.WithTimeout(t.Context(), 10*time.Second)
		defer kill()
		payload, err := h.Invoke(invocation, recorded(t, "http2"))
		if got := decode(t, payload); err != nil || got.StatusCode < 400 || invocation.Err() != nil {
			t.Errorf("got %+v, %v", got, err)
		}
		close(goOn)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestHTTPHandler_AnotherEventIsAnError(t *testing.T) {
	h := lambdaonce.HTTPHandler(http.NotFoundHandler())
	for _, event := range []string{
		`{}`, `null`, `"a"`, `{"version":"2.0"}`, string(recorded(t, "sqs")),
		`{"httpMethod":"POST","path":"/","requestContext":{"elb":{"targetGroupArn":"arn"}}}`,
		`{"version":"2.0","requestContext":{"http":{"method":"POST"}},"rawPath":7}`,
	} {
		if got, err := h.Invoke(t.Context(), []byte(event)); err == nil || !strings.HasPrefix(err.Error(), "lambdaonce: ") {
			t.Errorf("%s: got %s, %v", event, got, err)
		}
	}
	wantPanic(t, "lambdaonce: HTTPHandler: the handler is nil", func() { lambdaonce.HTTPHandler(nil) })
}
