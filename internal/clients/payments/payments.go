// Package payments has the form of the client that oapi-codegen generates for the API of a bank,
// reduced to one operation.
package payments

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// An HttpRequestDoer sends requests. An *http.Client is one.
type HttpRequestDoer interface {
	Do(r *http.Request) (*http.Response, error)
}

// A RequestEditorFn changes a request before it is sent.
type RequestEditorFn func(ctx context.Context, r *http.Request) error

// A Client calls the API.
type Client struct {
	Server string
	Client HttpRequestDoer
}

// A ClientOption changes a Client.
type ClientOption func(*Client) error

// WithHTTPClient sets what sends the requests of a Client.
func WithHTTPClient(doer HttpRequestDoer) ClientOption {
	return func(c *Client) error {
		c.Client = doer
		return nil
	}
}

// A Payment is the body of a request.
type Payment struct {
	Note   string `json:"note"`
	Amount int    `json:"amount"`
}

// CreatePaymentParams are the headers of a request.
type CreatePaymentParams struct {
	IdempotencyKey *string
}

// A CreatePaymentResponse is a response whose body has been read.
type CreatePaymentResponse struct {
	Body         []byte
	HTTPResponse *http.Response
}

// NewClientWithResponses returns a client of the server at a URL.
func NewClientWithResponses(server string, options ...ClientOption) (*Client, error) {
	c := &Client{Server: server, Client: http.DefaultClient}
	for _, option := range options {
		if err := option(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// CreatePaymentWithResponse makes a payment.
func (c *Client) CreatePaymentWithResponse(ctx context.Context, params *CreatePaymentParams, payment Payment, editors ...RequestEditorFn) (*CreatePaymentResponse, error) {
	body, err := json.Marshal(payment)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Server, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if params != nil && params.IdempotencyKey != nil {
		r.Header.Set("Idempotency-Key", *params.IdempotencyKey)
	}
	for _, edit := range editors {
		if err := edit(ctx, r); err != nil {
			return nil, err
		}
	}
	w, err := c.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	made := &CreatePaymentResponse{HTTPResponse: w}
	if made.Body, err = io.ReadAll(w.Body); err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return made, nil
}
