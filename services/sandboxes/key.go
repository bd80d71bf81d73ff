package sandboxes

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/keyed"
)

// operation is the same for all paths, so that a key that was used on another
// path is a conflict.
const operation = "sandboxes"

// keys is the format of a call's key.
var keys = httponce.Config{KeyFormat: httponce.KeyFormat{Syntax: httponce.TokenOnly, MaxLength: 128}}

// key returns the call's key; ok is false if it has none.
func (c *call) key() (key string, ok bool, err error) {
	key, err = keys.ReadKey(c.Request)
	var p httponce.Problem
	switch {
	case errors.As(err, &p) && p.Code == httponce.CodeKeyMissing:
		return "", false, nil
	case err != nil:
		return "", false, errInvalid(httponce.DefaultHeader, "must appear exactly once and have 1 to 128 characters from a-z A-Z 0-9 _ -")
	}
	return key, true, nil
}

// request returns the call as a request of a command. asked is the parsed body with its
// defaults: bodies with the same meaning are the same request, however they are
// written.
func (c *call) request(key string, asked any, secret []byte) (onlyonce.Request, error) {
	doc, err := json.Marshal(asked)
	if err != nil {
		return onlyonce.Request{}, fmt.Errorf("hash the request: %w", err)
	}
	sum, err := onlyonce.FingerprintJSON(doc)
	if err != nil {
		return onlyonce.Request{}, fmt.Errorf("hash the request: %w", err)
	}
	return onlyonce.Request{
		ID:          onlyonce.ID{Tenant: c.owner, Operation: operation, Key: key},
		Fingerprint: keyed.Fingerprint(secret, onlyonce.Fingerprint([]byte(key), []byte(c.URL.Path), []byte(c.Method), sum)),
	}, nil
}

// unrepeatable is an ErrUnknown of a call without a key: a repeat would not find out what became of it,
// and could run it again.
type unrepeatable struct{ error }

func (e unrepeatable) Unwrap() error { return e.error }

// runOnce runs fn, and for a call with a key only the first time. The rows that fn
// writes and its response, or the problem that it returns, are one commit. asked is as in
// request.
func (a *API) runOnce(c *call, asked any, fn func(context.Context, querier) (response, error)) (response, error) {
	key, given, err := c.key()
	if err != nil {
		return response{}, err
	}
	if !given {
		var resp response
		err := a.transact(c.Context(), func(ctx context.Context, on querier) (err error) {
			resp, err = fn(ctx, on)
			return err
		})
		if errors.Is(err, onlyonce.ErrUnknown) {
			err = unrepeatable{err}
		}
		return resp, err
	}
	req, err := c.request(key, asked, a.cfg.FingerprintSecret)
	if err != nil {
		return response{}, err
	}
	admission, err := a.limiter.Admit(c.Context(), c.owner)
	if err != nil {
		return response{}, err
	}
	defer admission.Release()
	got, err := onlyonce.DoTx(c.Context(), a.guard, req, func(ctx context.Context, tx *sql.Tx) (json.RawMessage, error) {
		attempt := onlyonce.Current(ctx)
		admission.Runs(attempt)
		resp, err := fn(ctx, tx)
		var decided *problem
		if errors.As(err, &decided) {
			resp, err = decided.response(c.requestID), nil
		}
		attempt.SetStatus(resp.status)
		return resp.body, err
	})
	if err != nil {
		return response{}, err
	}
	return storedResponse(got)
}
