package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

// A Charge is the payment for an order before the order is created.
type Charge struct {
	Key    string // the same on every attempt at the order: the payment provider's idempotency key
	Tenant string
	Total  string // decimal text
}

// createOnce runs the command once for its request. Without a charge, all of it is one
// transaction.
func (a *API) createOnce(ctx context.Context, req onlyonce.Request, d draft) (onlyonce.Answer[json.RawMessage], error) {
	tenant := req.ID.Tenant
	if a.cfg.Charge != nil {
		return onlyonce.Do(ctx, a.guard.Guard, req, func(ctx context.Context) (json.RawMessage, error) { return a.charged(ctx, tenant, d) })
	}
	return onlyonce.DoTx(ctx, a.guard, req, func(ctx context.Context, tx *sql.Tx) (json.RawMessage, error) {
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
