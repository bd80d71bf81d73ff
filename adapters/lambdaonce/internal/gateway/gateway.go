// Package gateway serves Lambda functions as API Gateway and function URLs do: it turns requests
// into events, and what the functions return into responses. It is for tests and examples.
package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

// A Kind is a kind of API.
type Kind string

// These are the kinds.
const (
	REST        Kind = "a REST API"
	HTTPv1      Kind = "an HTTP API in payload format 1.0"
	HTTPv2      Kind = "an HTTP API in payload format 2.0"
	FunctionURL Kind = "a function URL"
)

// Timeout is how long an invocation may take, by its deadline.
const Timeout = 30 * time.Second

// New returns a server of a function. Its caller is the one that the header X-Account names, as if
// a Lambda authorizer had said so.
func New(function lambda.Handler, kind Kind) http.Handler { return &server{function, kind} }

type server struct {
	function lambda.Handler
	kind     Kind
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body is truncated", http.StatusBadRequest)
		return
	}
	event, err := json.Marshal(s.event(r, body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), Timeout)
	defer cancel()
	payload, err := s.function.Invoke(ctx, event)
	var response events.APIGatewayV2HTTPResponse
	if err == nil {
		err = json.Unmarshal(payload, &response)
	}
	text := []byte(response.Body)
	if err == nil && response.IsBase64Encoded {
		text, err = base64.StdEncoding.DecodeString(response.Body)
	}
	if err != nil {
		log.Print(err)
		http.Error(w, "Internal Server Error", http.StatusBadGateway)
		return
	}
	h := w.Header()
	h["Content-Type"] = nil
	for name, value := range response.Headers {
		h.Set(name, value)
	}
	for name, values := range response.MultiValueHeaders {
		h[name] = values
	}
	for _, cookie := range response.Cookies {
		h.Add("Set-Cookie", cookie)
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(text)
}

// event returns the event of a request.
func (s *server) event(r *http.Request, data []byte) any {
	body, isBase64 := string(data), !utf8.Valid(data)
	if isBase64 {
		body = base64.StdEncoding.EncodeToString(data)
	}
	ip, _, _ := net.SplitHostPort(r.RemoteAddr)
	r.Header.Set("Host", r.Host)
	last := map[string]string{}
	for name, values := range r.Header {
		last[name] = values[len(values)-1]
	}
	path, authorizer := r.URL.EscapedPath(), map[string]any{}
	if account := r.Header.Get("X-Account"); account != "" {
		authorizer["principalId"] = account
	}
	switch s.kind {
	case REST, HTTPv1:
		v1 := events.APIGatewayProxyRequest{
			Resource: "/{proxy+}", Path: path, HTTPMethod: r.Method, Headers: last, MultiValueHeaders: r.Header,
			MultiValueQueryStringParameters: r.URL.Query(), Body: body, IsBase64Encoded: isBase64,
			RequestContext: events.APIGatewayProxyRequestContext{
				Stage: "test", DomainName: "api.execute-api.eu-central-1.amazonaws.com", RequestID: "a request", Protocol: r.Proto,
				Identity: events.APIGatewayRequestIdentity{SourceIP: ip}, Authorizer: authorizer,
			},
		}
		if s.kind == REST {
			return v1
		}
		v1.Path = r.URL.Path
		return struct {
			Version string `json:"version"`
			events.APIGatewayProxyRequest
		}{"1.0", v1}
	}
	v2 := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: path, RawQueryString: r.URL.RawQuery, Headers: map[string]string{}, Body: body, IsBase64Encoded: isBase64,
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: "$default", Stage: "$default", DomainName: "id.lambda-url.eu-central-1.on.aws", RequestID: "a request",
			Authorizer: &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{Lambda: authorizer},
			HTTP:       events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: r.Method, Path: path, Protocol: r.Proto, SourceIP: ip},
		},
	}
	if s.kind == HTTPv2 {
		v2.RawPath, v2.RequestContext.DomainName = r.URL.Path, "api.execute-api.eu-central-1.amazonaws.com"
	}
	for name, values := range r.Header {
		if name == "Cookie" {
			v2.Cookies = strings.Split(strings.Join(values, "; "), "; ")
			continue
		}
		v2.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	return v2
}
