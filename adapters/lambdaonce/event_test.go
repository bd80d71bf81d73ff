package lambdaonce_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A request is what a handler sees of an event.
type request struct {
	uri, path, rawPath, pattern, host, remote, body, principal, id string
	query                                                          map[string][]string
	accept, cookies                                                []string
}

// seen returns what a handler sees of an event.
func seen(t *testing.T, event []byte) (got request) {
	t.Helper()
	h := lambdaonce.HTTPHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) || r.Method != "POST" || r.Proto != "HTTP/1.1" || r.Header.Get("Host") != "" || r.Header.Get("Idempotency-Key") != "k" {
			t.Errorf("the request is %+v, %v", r, err)
		}
		got = request{
			uri: r.RequestURI, path: r.URL.Path, rawPath: r.URL.RawPath, pattern: r.Pattern, host: r.Host, remote: r.RemoteAddr,
			body: string(body), principal: lambdaonce.Principal(r), query: r.URL.Query(), accept: r.Header["Accept"],
		}
		for _, c := range r.Cookies() {
			got.cookies = append(got.cookies, c.String())
		}
		if e := lambdaonce.Event(r); e.V1 != nil {
			got.id = e.V1.RequestContext.RequestID
		} else {
			got.id = e.V2.RequestContext.RequestID
		}
	}))
	invoke(t, h, event)
	return got
}

func TestEvent_TheRequestIsTheOneThatTheClientSent(t *testing.T) {
	for name, want := range map[string]request{
		"rest": {
			uri: "/accounts/7%2F8/charges?sort=%26&tag=a&tag=b+c", path: "/accounts/7/8/charges", rawPath: "/accounts/7%2F8/charges",
			pattern: "POST /accounts/{id}/charges", host: "shop.example.com", remote: "203.0.113.9:0", body: `{"amount":5}`,
			principal: "jwt https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Ab12 alice", id: "5f0c9a52-5f0e-4f57-9a0e-0d2f4f0f6f61",
			query: map[string][]string{"tag": {"a", "b c"}, "sort": {"&"}}, accept: []string{"text/html", "text/plain"}, cookies: []string{"a=1", "b=2"},
		},
		"http1": {
			uri: "/accounts/7/8/charges", path: "/accounts/7/8/charges",
			pattern: "POST /accounts/{id}/charges", host: "shop.example.com", remote: "[2001:db8::9]:0", body: `{"amount":5}`,
			principal: "lambda alice", id: "JKJaXmPLvHcESHA=",
			query: map[string][]string{}, accept: []string{"text/html, text/plain"}, cookies: []string{"a=1", "b=2"},
		},
		"http2": {
			uri: "/live/accounts/7%25/charges?tag=a&tag=b%20c&sort=%26", path: "/live/accounts/7%/charges",
			pattern: "POST /accounts/{id}/charges", host: "k3x9a1b2c3.execute-api.eu-central-1.amazonaws.com", remote: "203.0.113.9:0", body: `{"amount":5}`,
			principal: "jwt https://login.example.com/ alice", id: "JKJaXmPLvHcESHA=",
			query: map[string][]string{"tag": {"a", "b c"}, "sort": {"&"}}, accept: []string{"text/html,text/plain"}, cookies: []string{"a=1", "b=2"},
		},
		"url": {
			uri: "/accounts/7%2F8/charges", path: "/accounts/7/8/charges", rawPath: "/accounts/7%2F8/charges",
			host: "qw3er5ty.lambda-url.eu-central-1.on.aws", remote: "203.0.113.9:0", body: `{"amount":5}`,
			principal: "iam arn:aws:sts::111122223333:assumed-role/shop/till", id: "0a1b2c3d-0000-4000-8000-0123456789ab",
			query: map[string][]string{},
		},
	} {
		if got := seen(t, recorded(t, name)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v, want\n%+v", name, got, want)
		}
	}
}

// changed returns a recorded event with another value at a path.
func changed(t *testing.T, name string, value any, path ...string) []byte {
	t.Helper()
	var event map[string]any
	if err := json.Unmarshal(recorded(t, name), &event); err != nil {
		t.Fatal(err)
	}
	at := event
	for _, key := range path[:len(path)-1] {
		at = at[key].(map[string]any)
	}
	at[path[len(path)-1]] = value
	changed, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// poolARN is that of all users of a Cognito identity pool.
const poolARN = "arn:aws:sts::111122223333:assumed-role/pool-users/CognitoIdentityCredentials"

// An API authorizes a path as it has decoded it. Decoded again, it could be another route.
func TestSecurity_APathIsDecodedOnce(t *testing.T) {
	for _, c := range []struct{ name, field, sent, path string }{
		{"rest", "path", "/public/%252e%252e/admin", "/public/%2e%2e/admin"},
		{"url", "rawPath", "/public/%252e%252e/admin", "/public/%2e%2e/admin"},
		{"http1", "path", "/public/%2e%2e/admin", "/public/%2e%2e/admin"},
		{"http2", "rawPath", "/public/%2e%2e/admin", "/public/%2e%2e/admin"},
		{"http2", "rawPath", "/public?/admin#x", "/public?/admin#x"},
		{"http2", "rawPath", "//admin", "//admin"},
		{"url", "rawPath", "//admin", "//admin"},
		{"rest", "path", "", ""},
		{"rest", "path", "/a%zz", ""},
		{"rest", "path", "https://example.com/admin", ""},
		{"url", "rawPath", "admin", ""},
		{"http2", "rawPath", "admin", ""},
	} {
		event := changed(t, c.name, c.sent, c.field)
		var got *http.Request
		w := invoke(t, lambdaonce.HTTPHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r })), event)
		switch {
		case c.path == "" && (w.StatusCode != 400 || got != nil):
			t.Errorf("%s %q: got %+v", c.name, c.sent, w)
		case c.path != "" && (got == nil || got.URL.Path != c.path || got.Host == "admin"):
			t.Errorf("%s %q: got %+v, %+v", c.name, c.sent, w, got)
		}
	}
}

func TestSecurity_APrincipalIsWhoTheAuthorizerSays(t *testing.T) {
	for _, c := range []struct {
		name       string
		authorizer any
		want       string
	}{
		{"rest", nil, ""},
		{"rest", map[string]any{"principalId": "iam arn"}, "lambda iam arn"},
		{"rest", map[string]any{"principalId": 7}, ""},
		{"rest", map[string]any{"claims": map[string]any{"sub": "alice"}}, ""},
		{"rest", map[string]any{"claims": map[string]any{}, "principalId": "alice"}, ""},
		{"http2", nil, ""},
		{"http2", map[string]any{"lambda": map[string]any{"principalId": "alice"}}, "lambda alice"},
		{"http2", map[string]any{"lambda": map[string]any{"claims": map[string]any{"iss": "i", "sub": "s"}}}, ""},
		{"http2", map[string]any{"jwt": map[string]any{"claims": map[string]any{"iss": "i"}}}, ""},
		{"url", nil, ""},
		{"url", map[string]any{"iam": map[string]any{"userArn": "arn:aws:iam::1:user/a"}}, "iam arn:aws:iam::1:user/a"},
		{"url", map[string]any{"iam": map[string]any{"userArn": poolARN, "cognitoIdentity": map[string]any{"identityId": "eu-central-1:a"}}}, "cognito eu-central-1:a"},
		{"url", map[string]any{"iam": map[string]any{"userArn": poolARN, "cognitoIdentity": nil}}, ""},
	} {
		if got := seen(t, changed(t, c.name, c.authorizer, "requestContext", "authorizer")).principal; got != c.want {
			t.Errorf("%s with %v: got %q, want %q", c.name, c.authorizer, got, c.want)
		}
	}
	unsigned := changed(t, "rest", nil, "requestContext", "authorizer")
	for signer, want := range map[string]string{
		`"userArn":"arn:aws:iam::1:user/a"`:                                "iam arn:aws:iam::1:user/a",
		`"userArn":"` + poolARN + `","cognitoIdentityId":"eu-central-1:a"`: "cognito eu-central-1:a",
		`"userArn":"` + poolARN + `"`:                                      "",
	} {
		if got := seen(t, bytes.ReplaceAll(unsigned, []byte(`"userArn":null`), []byte(signer))).principal; got != want {
			t.Errorf("a request signed by %s is from %q, want %q", signer, got, want)
		}
	}
}

func TestSecurity_AKeyInTwoSpellingsOfItsHeaderIsRejected(t *testing.T) {
	for name, event := range map[string][]byte{
		"rest":  changed(t, "rest", map[string][]string{"Idempotency-Key": {"k"}, "idempotency-key": {"other"}}, "multiValueHeaders"),
		"http2": changed(t, "http2", "k,other", "headers", "idempotency-key"),
	} {
		h := wrapped(memstore.New(memstore.Config{}), func(http.ResponseWriter, *http.Request) { t.Error("it ran") }, httponce.Config{})
		if got := invoke(t, h, event); got.StatusCode != 400 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestEvent_OneValueOfEachFieldIsEnough(t *testing.T) {
	event := changed(t, "rest", nil, "multiValueHeaders")
	got := seen(t, event)
	if len(got.accept) != 1 || got.accept[0] != "text/plain" {
		t.Errorf("got %+v", got)
	}
}

func TestEvent_ABodyThatIsNotBase64IsRejected(t *testing.T) {
	h := lambdaonce.HTTPHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it ran") }))
	if got := invoke(t, h, changed(t, "http1", "?", "body")); got.StatusCode != 400 {
		t.Errorf("got %+v", got)
	}
}

func TestEvent_PanicsOnARequestOfAnother(t *testing.T) {
	r := httptest.NewRequest("POST", "/", nil)
	wantPanic(t, "lambdaonce: Event: the request is not one of HTTPHandler", func() { lambdaonce.Event(r) })
	wantPanic(t, "lambdaonce: Event: ", func() { lambdaonce.Principal(r) })
}
