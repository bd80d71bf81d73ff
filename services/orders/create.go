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

// operation names the command: the same key for another operation is another
// command's.
const operation = "CreateOrder"

// maxBody is many times what a valid body needs.
const maxBody = 256 << 10

// A created is what a client is told of its new order.
type created struct {
	ID        string    `json:"id"`
	Status    string    `json:"status"`
	Total     string    `json:"total"`
	CreatedAt time.Time `json:"created_at"`
}

// create runs the command once for its key. What is wrong in itself is rejected
// before the key is looked at, and leaves it unused.
func (a *API) create(w http.ResponseWriter, r *http.Request, tenant string) (answer, error) {
	key, err := httponce.ReadKey(r)
	if err != nil {
		return answer{}, err
	}
	body, err := jsonbody.Read(w, r, maxBody)
	if err != nil {
		return answer{}, err
	}
	d, err := parseDraft(body)
	if err != nil {
		return answer{}, err
	}
	fingerprint, err := d.fingerprint()
	if err != nil {
		return answer{}, err
	}
	req := onlyonce.Request{
		ID:          onlyonce.ID{Tenant: tenant, Operation: operation, Key: key},
		Fingerprint: keyed.Fingerprint(a.cfg.FingerprintSecret, fingerprint),
		Wait:        httponce.PreferredWait(r, a.cfg.MaxWait),
	}
	got, err := a.run(r.Context(), req, d)
	if got.Replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if err != nil {
		return answer{}, &commandError{err}
	}
	return answer{status: got.Status, location: "/orders/" + got.Ref, body: got.Value}, nil
}

// place handles the command: the order, its event and the body of its answer are
// one commit.
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
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	attempt := onlyonce.Current(ctx)
	attempt.SetRef(public)
	attempt.SetStatus(http.StatusCreated)
	return body, nil
}
