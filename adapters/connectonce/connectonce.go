// Package connectonce makes the services of connect-go idempotent, for calls of the Connect
// protocol, gRPC and gRPC-Web alike. A repeat of a call gets the first response, byte for
// byte, and its handler does not run again.
//
//	path, service := shopv1connect.NewShopServiceHandler(shop)
//	mux.Handle(path, connectonce.Wrap(guard, service, httponce.Config{Tenant: accountOf}))
//
// The key is in the call's metadata, which are headers: Idempotency-Key. The code of the error
// that a handler returns decides the outcome, in the same way for all protocols: see
// httponce.RPCStatus. An error with a google.rpc.RetryInfo asks for a retry, for example because a
// server that the handler has called is still running the call. It is never the response.
//
// Authenticate callers in a handler around Wrap. Interceptors of connect-go run inside, so that a
// repeat would get the stored response before they have checked its token.
//
// A rejection is an error in the protocol of the call. Its details are a google.rpc.ErrorInfo,
// whose reason is the code of the httponce.Problem in upper case and whose domain is Domain,
// and a google.rpc.RetryInfo if a retry with the same key can help.
//
// A command does not end at the deadline of its client, as it does not end with the client: the
// context of a handler whose call has a key has no deadline of the client's. The client's next
// call with the key gets the response. The messages of the two calls must be encoded to the
// same bytes. proto.Marshal writes the entries of a map in a different order each time, so
// that such a call is rejected with IDEMPOTENCY_KEY_REUSED: encode it once, or set
// Config.Fingerprint.
//
// A response that is longer than Config.MaxResponse, or that DontStoreBody leaves out, is recorded
// without its message. A repeat then fails with failed_precondition and RESPONSE_OMITTED.
//
// A panic leaves the outcome unknown, but connect.WithRecover runs inside: with it, a panic is
// an error like others.
//
// A call whose requests are a stream is read to its end before its handler runs. Do not send a
// key with bidirectional streams.
package connectonce

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// Domain is the domain of the google.rpc.ErrorInfo of a rejection.
const Domain = "onlyonce"

// Wrap returns a handler that runs each call of service once for each idempotency key. It is
// httponce.Wrap with other defaults for three fields of the Config: Operation is the procedure
// ("/shop.v1.ShopService/Charge"), Problem writes an error in the protocol of the call, and StatusOf
// is httponce.RPCStatus that knows the errors of unary calls, too. It panics as httponce.Wrap does.
func Wrap(g *onlyonce.Guard, service http.Handler, cfg httponce.Config) http.Handler {
	if cfg.Operation == nil {
		cfg.Operation = func(r *http.Request) string { return r.URL.Path }
	}
	if cfg.StatusOf == nil {
		cfg.StatusOf = statusOf
	}
	if cfg.Problem == nil {
		errors := connect.NewErrorWriter()
		cfg.Problem = func(w http.ResponseWriter, r *http.Request, p httponce.Problem) {
			if !errors.IsSupported(r) {
				p.ServeHTTP(w, r)
				return
			}
			_ = errors.Write(w, r, rejection(p)) // a client that is gone can't be told
		}
	}
	return withoutDeadlines(httponce.Wrap(g, service, cfg), &cfg)
}

// statusOf is httponce.RPCStatus, except that an error of a unary call of the Connect protocol that
// asks for a retry is not the response either.
func statusOf(response onlyonce.Result) int {
	isError := response.Status >= 400 && response.Status < 499 && slices.Contains(response.Header["Content-Type"], "application/json")
	if isError && bytes.Contains(response.Body, retryInfo) {
		var failed struct{ Details []struct{ Type string } }
		if json.Unmarshal(response.Body, &failed) == nil && slices.ContainsFunc(failed.Details, func(d struct{ Type string }) bool { return d.Type == string(retryInfo) }) {
			return http.StatusTooEarly
		}
	}
	return httponce.RPCStatus(response)
}

// retryInfo is the name of the detail that asks for a retry.
var retryInfo = []byte("google.rpc.RetryInfo")

// withoutDeadlines returns a handler that passes a call with a key to h without the client's
// deadline: connect-go would end the context of its handler then, and the error would count as
// a failure, after which a repeat runs the command again.
func withoutDeadlines(h http.Handler, cfg *httponce.Config) http.Handler {
	key := http.CanonicalHeaderKey(cmp.Or(cfg.Header, httponce.DefaultHeader))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header[key]) > 0 || cfg.KeyInBody != nil {
			r = r.WithContext(r.Context())
			r.Header = r.Header.Clone()
			httpfield.DropDeadlines(r.Header)
		}
		h.ServeHTTP(w, r)
	})
}

// rejection returns the error that tells a client about a problem.
func rejection(p httponce.Problem) *connect.Error {
	code, _ := p.RPCCode()
	err := connect.NewError(connect.Code(code), problemText(p.Detail))
	details := []proto.Message{&errdetails.ErrorInfo{Reason: strings.ToUpper(p.Code), Domain: Domain}}
	if p.Retryable {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.RetryAfter)})
	}
	for _, message := range details {
		if detail, failed := connect.NewErrorDetail(message); failed == nil {
			err.AddDetail(detail)
		}
	}
	return err
}

// A problemText is the text of a rejection. It does not include Problem.Err.
type problemText string

func (t problemText) Error() string { return string(t) }
