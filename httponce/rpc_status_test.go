package httponce_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestRPCCode_IsThatOfTheProblem(t *testing.T) {
	type code struct {
		number uint32
		name   string
	}
	for want, problems := range map[code][]string{
		{3, "invalid_argument"}:    {httponce.CodeKeyMissing, httponce.CodeKeyInvalid, httponce.CodeBodyTooLarge, httponce.CodeBodyEncoded},
		{8, "resource_exhausted"}:  {httponce.CodeTooManyRequests},
		{9, "failed_precondition"}: {httponce.CodeKeyReused, httponce.CodeKeyExpired, httponce.CodeResponseOmitted, httponce.CodeOutcomeUnknown},
		{10, "aborted"}:            {httponce.CodeInProgress},
		{13, "internal"}:           {httponce.CodeCommandFailed, httponce.CodeResponseTooLarge, "another"},
		{14, "unavailable"}:        {httponce.CodeStoreUnavailable, httponce.CodeOverloaded, httponce.CodeBodyUnreadable},
		{16, "unauthenticated"}:    {httponce.CodeTenantMissing},
	} {
		for _, problem := range problems {
			if number, name := (httponce.Problem{Code: problem}).RPCCode(); (code{number, name}) != want {
				t.Errorf("%s is %d %s, want %v", problem, number, name, want)
			}
		}
	}
}

func envelope(flags byte, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(content))), content...)
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// base64Chunks encodes each chunk by itself, padding included, as servers of
// gRPC-Web do that flush.
func base64Chunks(chunks ...[]byte) (text []byte) {
	for _, chunk := range chunks {
		text = base64.StdEncoding.AppendEncode(text, chunk)
	}
	return text
}

func TestRPCStatus_ReadsWhatBecameOfACall(t *testing.T) {
	asksForRetry := base64.StdEncoding.EncodeToString([]byte("\x08\x0a\x12\x02no\x1a*\x0a(type.googleapis.com/google.rpc.RetryInfo"))
	web := func(status string) []byte { return []byte("grpc-message: no\r\ngrpc-status: " + status + "\r\n") }
	for name, test := range map[string]struct {
		header map[string]string
		body   []byte
		want   int
	}{
		"not RPC":                                         {map[string]string{"Content-Type": "application/json"}, []byte("{}"), 200},
		"gRPC, ok":                                        {map[string]string{"Grpc-Status": "0"}, nil, 200},
		"gRPC, invalid_argument":                          {map[string]string{"Grpc-Status": "3"}, nil, 400},
		"gRPC, internal":                                  {map[string]string{"Grpc-Status": "13"}, nil, 500},
		"gRPC, aborted, asks for a retry":                 {map[string]string{"Grpc-Status": "10", "Grpc-Status-Details-Bin": asksForRetry}, nil, 425},
		"gRPC, internal, asks for a retry":                {map[string]string{"Grpc-Status": "13", "Grpc-Status-Details-Bin": asksForRetry}, nil, 500},
		"gRPC, canceled, asks for a retry":                {map[string]string{"Grpc-Status": "1", "Grpc-Status-Details-Bin": asksForRetry}, nil, 499},
		"gRPC, aborted, with details":                     {map[string]string{"Grpc-Status": "10", "Grpc-Status-Details-Bin": base64.RawStdEncoding.EncodeToString([]byte("type.googleapis.com/google.rpc.ErrorInfo"))}, nil, 409},
		"gRPC, aborted, with a text that names RetryInfo": {map[string]string{"Grpc-Status": "10", "Grpc-Status-Details-Bin": base64.RawStdEncoding.EncodeToString([]byte("\x08\x0a\x12\x15/google.rpc.RetryInfo\x1a\x1f\x0a\x04a.b/\x12\x17\x0a\x15/google.rpc.RetryInfo"))}, nil, 409},
		"gRPC, aborted, with a detail after others that asks for it": {map[string]string{"Grpc-Status": "10", "Grpc-Status-Details-Bin": base64.RawStdEncoding.EncodeToString([]byte("\x08\xff\x01\x25abcd\x29abcdefgh\x1a\x03\x0a\x01a\x1a\x17\x0a\x15/google.rpc.RetryInfo"))}, nil, 425},
		"gRPC, aborted, with details that break off":                 {map[string]string{"Grpc-Status": "10", "Grpc-Status-Details-Bin": base64.RawStdEncoding.EncodeToString([]byte("\x08\x0a\x1a\x7f\x0a\x15/google.rpc.RetryInfo"))}, nil, 409},
		"gRPC, aborted, with details that are not base64":            {map[string]string{"Grpc-Status": "10", "Grpc-Status-Details-Bin": "!"}, nil, 409},
		"gRPC-Web, asks for a retry":                                 {map[string]string{"Content-Type": "application/grpc-web"}, envelope(0x80, append(web("10"), "grpc-status-details-bin: "+asksForRetry+"\r\n"...)), 425},
		"Connect stream, asks for a retry":                           {map[string]string{"Content-Type": "application/connect+json"}, envelope(2, []byte(`{"error":{"code":"aborted","details":[{"type":"google.rpc.RetryInfo","value":""}]}}`)), 425},
		"Connect stream, with details":                               {map[string]string{"Content-Type": "application/connect+json"}, envelope(2, []byte(`{"error":{"code":"aborted","details":[{"type":"google.rpc.ErrorInfo","value":""}]}}`)), 409},
		"gRPC, unauthenticated":                                      {map[string]string{"Grpc-Status": "16"}, nil, 401},
		"gRPC, a code nobody knows":                                  {map[string]string{"Grpc-Status": "99"}, nil, 500},
		"gRPC-Web, ok":                                               {map[string]string{"Content-Type": "application/grpc-web+proto"}, append(envelope(0, []byte("m")), envelope(0x80, web("0"))...), 200},
		"gRPC-Web, unavailable":                                      {map[string]string{"Content-Type": "application/grpc-web"}, envelope(0x80, web("14")), 503},
		"gRPC-Web, compressed":                                       {map[string]string{"Content-Type": "application/grpc-web", "Grpc-Encoding": "gzip"}, envelope(0x81, gzipped(t, string(web("5")))), 404},
		"gRPC-Web, compressed otherwise":                             {map[string]string{"Content-Type": "application/grpc-web", "Grpc-Encoding": "br"}, envelope(0x81, []byte("x")), 200},
		"gRPC-Web, cut off":                                          {map[string]string{"Content-Type": "application/grpc-web"}, envelope(0x80, web("14"))[:9], 200},
		"gRPC-Web, too long to be stored":                            {map[string]string{"Content-Type": "application/grpc-web"}, nil, 200},
		"gRPC-Web in base64":                                         {map[string]string{"Content-Type": "application/grpc-web-text+proto"}, base64Chunks(envelope(0, []byte("mm")), envelope(0x80, web("14"))), 503},
		"gRPC-Web in base64, ok":                                     {map[string]string{"Content-Type": "application/grpc-web-text"}, base64Chunks(append(envelope(0, []byte("m")), envelope(0x80, web("0"))...)), 200},
		"gRPC-Web, not in base64":                                    {map[string]string{"Content-Type": "application/grpc-web-text"}, envelope(0x80, web("14")), 200},
		"gRPC-Web, its type in upper case":                           {map[string]string{"Content-Type": "Application/gRPC-Web"}, envelope(0x80, web("14")), 503},
		"Connect stream, ok":                                         {map[string]string{"Content-Type": "application/connect+json"}, append(envelope(0, []byte("{}")), envelope(2, []byte("{}"))...), 200},
		"Connect stream, internal":                                   {map[string]string{"Content-Type": "application/connect+json; charset=utf-8"}, envelope(2, []byte(`{"error":{"code":"internal"}}`)), 500},
		"Connect stream, compressed":                                 {map[string]string{"Content-Type": "application/connect+proto", "Connect-Content-Encoding": "gzip"}, envelope(3, gzipped(t, `{"error":{"code":"aborted"}}`)), 409},
		"Connect stream, end is not gzip":                            {map[string]string{"Content-Type": "application/connect+proto", "Connect-Content-Encoding": "gzip"}, envelope(3, []byte("no")), 200},
		"Connect stream, canceled by a bug":                          {map[string]string{"Content-Type": "application/connect+proto"}, envelope(2, []byte(`{"error":{"code":"canceled"}}`)), 499},
	} {
		header := http.Header{}
		for k, v := range test.header {
			header.Set(k, v)
		}
		if got := httponce.RPCStatus(onlyonce.Result{Status: 200, Header: header, Body: test.body}); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func FuzzRPCStatus(f *testing.F) {
	f.Add("application/grpc-web", "gzip", envelope(0x80, []byte("grpc-status: 3\r\n")))
	f.Add("application/grpc-web-text", "", base64Chunks(envelope(0x80, []byte("grpc-status: 3\r\n"))))
	f.Add("application/connect+json", "", envelope(2, []byte(`{"error":{"code":"internal"}}`)))
	f.Fuzz(func(t *testing.T, media, encoding string, body []byte) {
		header := http.Header{"Content-Type": {media}, "Grpc-Encoding": {encoding}, "Connect-Content-Encoding": {encoding}}
		if got := httponce.RPCStatus(onlyonce.Result{Status: 200, Header: header, Body: body}); got < 200 || got > 599 {
			t.Errorf("%d", got)
		}
	})
}

func TestRPCStatus_AnErrorInATrailerFailsTheCommandSoThatItRunsAgain(t *testing.T) {
	for _, how := range []string{"prefixed", "prefixed before the status", "declared", "in the header"} {
		t.Run(how, func(t *testing.T) {
			runs := 0
			h := httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				runs++
				code := []string{"13", "3", "3"}[runs-1]
				switch how {
				case "prefixed":
					w.WriteHeader(200)
					w.Header().Set(http.TrailerPrefix+"Grpc-Status", code)
				case "prefixed before the status":
					w.Header().Set(http.TrailerPrefix+"Grpc-Status", code)
					w.(http.Flusher).Flush()
				case "declared":
					w.Header().Set("Trailer", "Grpc-Status")
					w.WriteHeader(200)
					w.Header().Set("Grpc-Status", code)
				case "in the header":
					w.Header().Set("Grpc-Status", code)
				}
			}), httponce.Config{Tenant: httponce.SingleTenant, StatusOf: httponce.RPCStatus})
			var got []string
			for range 3 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, keyedPost("a"))
				res := w.Result()
				got = append(got, fmt.Sprint(res.StatusCode, " ", w.Header().Get("Idempotency-Replayed"), " ", res.Trailer.Get("Grpc-Status")+res.Header.Get("Grpc-Status")))
			}
			if runs != 2 || strings.Join(got, ", ") != "200  13, 200  3, 200 true 3" {
				t.Errorf("%d runs: %s", runs, strings.Join(got, ", "))
			}
		})
	}
}

func TestRPCStatus_AnInvalidStatusCountsAsTheResponsesOwn(t *testing.T) {
	for _, said := range []int{0, -1, 100, 600} {
		runs := 0
		h := httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.WriteHeader(201)
		}), httponce.Config{Tenant: httponce.SingleTenant, StatusOf: func(onlyonce.Result) int { return said }})
		for range 2 {
			h.ServeHTTP(httptest.NewRecorder(), keyedPost("a"))
		}
		if runs != 1 {
			t.Errorf("%d: %d runs", said, runs)
		}
	}
}

func TestRPCStatus_IsTheDefaultForResponsesOfThoseProtocols(t *testing.T) {
	for media, runs := range map[string]int32{"application/grpc+proto": 2, "Application/GRPC": 2, "application/grpc-web": 2, "application/json": 1, "": 1} {
		t.Run(media, func(t *testing.T) {
			var ran atomic.Int32
			h := httponce.Wrap(newGuard(onlyonce.Config{Observer: onlyonce.DiscardEvents}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				ran.Add(1)
				if media != "" {
					w.Header().Set("Content-Type", media)
				}
				w.Header().Set("Trailer", "Grpc-Status")
				w.WriteHeader(200)
				w.Header().Set("Grpc-Status", "13") // internal
			}), single)
			for range 2 {
				post(h, "k", "x")
			}
			if ran.Load() != runs {
				t.Errorf("%d runs, want %d", ran.Load(), runs)
			}
		})
	}
}

// An empty body would be an empty message, or a stream of none.
func TestRPCStatus_ARepeatWithoutTheStoredMessageIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		response, request http.Header
		want              int
	}{
		"gRPC":               {response: http.Header{"Content-Type": {"application/grpc"}, http.TrailerPrefix + "Grpc-Status": {"0"}}, want: 410},
		"an error of gRPC":   {response: http.Header{"Content-Type": {"application/grpc"}, http.TrailerPrefix + "Grpc-Status": {"3"}}, want: 200},
		"a stream":           {response: http.Header{"Content-Type": {"application/connect+json"}}, want: 410},
		"Connect":            {response: http.Header{"Content-Type": {"application/json"}}, request: http.Header{"Connect-Protocol-Version": {"1"}}, want: 410},
		"Connect, binary":    {response: http.Header{"Content-Type": {"application/proto"}}, want: 410},
		"Twirp":              {response: http.Header{"Content-Type": {"application/protobuf"}}, want: 410},
		"with a parameter":   {response: http.Header{"Content-Type": {"Application/X-Protobuf; messageType=shop.Receipt"}}, want: 410},
		"no such protocol":   {response: http.Header{"Content-Type": {"application/json"}}, want: 200},
		"without a type":     {response: http.Header{"Content-Type": nil}, want: 200},
		"an HTTP error, 404": {response: http.Header{"Content-Type": {"application/proto"}, "Status": {"404"}}, want: 404},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				maps.Copy(w.Header(), c.response)
				if w.Header().Get("Status") != "" {
					w.WriteHeader(404)
				}
				_, _ = io.WriteString(w, "more than is stored")
			}), httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: 10})
			send := func() *httptest.ResponseRecorder {
				r := keyed(http.MethodPost, "/orders", "k", "x")
				maps.Copy(r.Header, c.request)
				return serve(h, r)
			}
			if w := send(); w.Body.String() != "more than is stored" {
				t.Fatalf("the first response: %d %s", w.Code, w.Body)
			}
			switch w := send(); {
			case c.want == 410:
				wantProblem(t, w, 410, "response_omitted")
			case w.Code != c.want || w.Body.Len() != 0 || w.Header().Get("Idempotency-Replay") != "omitted":
				t.Errorf("the repeat: %d %v %s", w.Code, w.Header(), w.Body)
			}
			if runs != 1 {
				t.Errorf("%d runs", runs)
			}
		})
	}
}

// The client cannot tell what became of such a call, so a replay would not tell it either.
func TestRPCStatus_AResponseWithoutAnOutcomeLeavesTheOutcomeUnknown(t *testing.T) {
	message, end := envelope(0, []byte("{}")), envelope(2, []byte("{}"))
	trailers := envelope(0x80, []byte("grpc-status: 0\r\n"))
	for name, c := range map[string]struct {
		media   string
		body    []byte
		unknown bool
	}{
		"Connect":                   {"application/connect+json", append(message, end...), false},
		"Connect, without an end":   {"application/connect+json", message, true},
		"Connect, empty":            {"application/connect+proto", nil, true},
		"Connect, end is cut off":   {"application/connect+json", append(message, end[:6]...), true},
		"Connect, end is not gzip":  {"application/connect+json", envelope(3, []byte("no")), false},
		"gRPC-Web":                  {"application/grpc-web+proto", append(message, trailers...), false},
		"gRPC-Web, without an end":  {"application/grpc-web+proto", message, true},
		"gRPC-Web in base64":        {"application/grpc-web-text", base64Chunks(message, trailers), false},
		"gRPC-Web in base64, cut":   {"application/grpc-web-text", base64Chunks(message), true},
		"gRPC, without a status":    {"application/grpc+proto", message, true},
		"gRPC-Web, too long to see": {"application/grpc-web", envelope(0, make([]byte, 2<<10)), false},
		"another":                   {"application/json", message, false},
	} {
		for _, flush := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", flushed ", flush), func(t *testing.T) {
				var ran atomic.Int32
				cfg := single
				cfg.MaxResponse = 1 << 10
				h := httponce.Wrap(newGuard(onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					ran.Add(1)
					w.Header().Set("Content-Type", c.media)
					w.WriteHeader(200)
					if flush {
						w.(http.Flusher).Flush()
					}
					_, _ = w.Write(c.body)
				}), cfg)
				if first := post(h, "k", "x"); first.Code != 200 || !bytes.Equal(first.Body.Bytes(), c.body) {
					t.Errorf("the client gets %d %q", first.Code, first.Body)
				}
				if repeat := post(h, "k", "x"); (repeat.Code == 409) != c.unknown || ran.Load() != 1 {
					t.Errorf("a repeat gets %d %q, %d runs", repeat.Code, repeat.Body, ran.Load())
				}
			})
		}
	}
}

// Some middlewares compress every response. What became of the call can't be read then, which is not
// the same as a response that does not say it: a command that has completed must not run again.
func TestRPCStatus_AStreamThatIsCompressedAsAWholeMayHaveItsEnd(t *testing.T) {
	for media, body := range map[string][]byte{
		"application/grpc-web+proto": append(envelope(0, []byte("m")), envelope(0x80, []byte("grpc-status: 0\r\n"))...),
		"application/connect+json":   append(envelope(0, []byte("{}")), envelope(2, []byte("{}"))...),
		"application/grpc":           envelope(0, []byte("m")),
	} {
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			w.Header().Set("Content-Type", media)
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(gzipped(t, string(body)))
		}), single)
		post(h, "k", "x")
		want := int32(1)
		if media == "application/grpc" { // whose status is not in the body
			want = 2
		}
		if got := post(h, "k", "x"); got.Code != 200 || runs.Load() != want {
			t.Errorf("%s: the repeat has %d %v, after %d runs", media, got.Code, got.Header(), runs.Load())
		}
	}
}
