package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
	"github.com/onlyonce-go/onlyonce/services/internal/keyed"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// operation is the operation of the command: the same key for another operation is
// another command.
const operation = "CreateOrder"

// maxBody is far above the size of a valid body.
const maxBody = 256 << 10

// A created is the body of the response to a new order.
type created struct {
	ID        string    `json:"id"`
	Status    string    `json:"status"`
	Total     string    `json:"total"`
	CreatedAt time.Time `json:"created_at"`
}

// create runs the command once for its key. An invalid request is rejected before its
// key is claimed, and leaves the key unused.
func (a *API) create(w http.ResponseWriter, r *http.Request, tenant string) (response, error) {
	key, err := httponce.ReadKey(r)
	if err != nil {
		return response{}, err
	}
	admission, err := a.limiter.Admit(r.Context(), tenant)
	if err != nil {
		return response{}, err
	}
	defer admission.Release()
	body, err := jsonbody.Read(w, r, maxBody)
	if err != nil {
		return response{}, err
	}
	d, err := parseDraft(body)
	if err != nil {
		return response{}, err
	}
	fingerprint, err := d.fingerprint()
	if err != nil {
		return response{}, err
	}
	req := onlyonce.Request{
		ID:          onlyonce.ID{Tenant: tenant, Operation: operation, Key: key},
		Fingerprint: keyed.Fingerprint(a.cfg.FingerprintSecret, fingerprint),
		Wait:        httponce.PreferredWait(r, a.cfg.MaxWait),
	}
	got, err := a.createOnce(r.Context(), req, d, admission)
	if got.Replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if err != nil {
		return response{}, &commandError{err}
	}
	return response{status: got.Status, location: "/orders/" + got.Ref, body: got.Value}, nil
}

// place writes an order and its event in the command's transaction, and returns the
// body of the response.
func (a *API) place(ctx context.Context, tx *sql.Tx, tenant string, d draft) (json.RawMessage, error) {
	o := publicid.New()
	if err := a.insert(ctx, tx, o, tenant, d); err != nil {
		return nil, fmt.Errorf("insert the order: %w", err)
	}
	if err := a.announce(ctx, tx, o, tenant, d); err != nil {
		return nil, fmt.Errorf("append the event: %w", err)
	}
	public := orderIDs.Format(o)
	body, err := json.Marshal(created{public, statusCreated, d.total.String(), o.Time()})
	if err != nil {
		return nil, fmt.Errorf("encode the response: %w", err)
	}
	attempt := onlyonce.Current(ctx)
	attempt.SetRef(public)
	attempt.SetStatus(http.StatusCreated)
	return body, nil
}

// A Charge is the payment for an order before the order is created.
type Charge struct {
	Key    string // the same on every attempt at the order: the payment provider's idempotency key
	Tenant string
	Total  string // decimal text
}

// createOnce runs the command once for its request. Without a charge, all of it is one
// transaction.
func (a *API) createOnce(ctx context.Context, req onlyonce.Request, d draft, admission *httponce.Admission) (onlyonce.Answer[json.RawMessage], error) {
	tenant := req.ID.Tenant
	if a.cfg.Charge != nil {
		return onlyonce.Do(ctx, a.guard.Guard, req, func(ctx context.Context) (json.RawMessage, error) {
			admission.Runs(onlyonce.Current(ctx))
			return a.charged(ctx, tenant, d)
		})
	}
	return onlyonce.DoTx(ctx, a.guard, req, func(ctx context.Context, tx *sql.Tx) (json.RawMessage, error) {
		admission.Runs(onlyonce.Current(ctx))
		return a.place(ctx, tx, tenant, d)
	})
}

// charged charges for the order and then creates it. The charge is a step, which no
// later attempt runs again; the order and the response are one commit.
func (a *API) charged(ctx context.Context, tenant string, d draft) (body json.RawMessage, err error) {
	attempt := onlyonce.Current(ctx)
	if _, err := onlyonce.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return a.cfg.Charge(ctx, Charge{attempt.Key("charge"), tenant, d.total.String()})
	}); err != nil {
		return nil, fmt.Errorf("charge for the order: %w", err)
	}
	err = a.guard.SettleTx(ctx, attempt, func(ctx context.Context, tx *sql.Tx) (s onlyonce.Settlement, err error) {
		if body, err = a.place(ctx, tx, tenant, d); err != nil {
			return s, err
		}
		s.State, s.Result.Body = onlyonce.StateCompleted, body
		return s, nil
	})
	return body, err
}
