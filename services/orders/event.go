package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// TopicCreated is the topic of the event that an order was created.
const TopicCreated = "order.created"

// An event announces an order to consumers.
type event struct {
	OrderID     string    `json:"order_id"`
	Items       []item    `json:"items"`
	ExternalRef *string   `json:"external_ref"`
	Total       string    `json:"total"`
	CreatedAt   time.Time `json:"created_at"`
}

// announce appends the order's event to the outbox, in the order's transaction.
func (a *API) announce(ctx context.Context, tx *sql.Tx, o publicid.ID, tenant string, d draft) error {
	public := orderIDs.Format(o)
	payload, err := json.Marshal(event{public, d.Items, d.ExternalRef, d.total.String(), o.Time()})
	if err != nil {
		return err
	}
	return a.outbox.Append(ctx, tx, outbox.Message{
		Topic: TopicCreated, Key: public, Tenant: tenant, Headers: map[string]string{headerOrigin: a.origin}, Payload: payload,
	})
}

const (
	shipSQL    = `INSERT INTO orders_shipments (id, tenant, order_id, status, created_at) VALUES (?, ?, ?, ?, ?)`
	shippedSQL = `SELECT count(*) FROM orders_shipments WHERE order_id = ?`
)

// ship creates the shipment of the order that an event announces.
func (a *API) ship(ctx context.Context, tx *sql.Tx, m outbox.Message) error {
	o, err := announced(m)
	if err != nil {
		return err
	}
	s := publicid.New()
	_, err = tx.ExecContext(ctx, a.engine.Bind(shipSQL), s[:], m.Tenant, o[:], statusPending, s.Time().UnixMilli())
	if err != nil {
		return fmt.Errorf("insert the shipment: %w", err)
	}
	return nil
}

// shipped reports whether the order that an event announces has a shipment. It answers for an event
// that the outbox itself delivers when the record that it was handled would have expired: it may
// have waited that long for a server, after one that handled it died.
func (a *API) shipped(ctx context.Context, tx *sql.Tx, m outbox.Message) (bool, error) {
	o, err := announced(m)
	if err != nil {
		return false, err
	}
	n := 0
	if err := tx.QueryRowContext(ctx, a.engine.Bind(shippedSQL), o[:]).Scan(&n); err != nil {
		return false, fmt.Errorf("look for the shipment: %w", err)
	}
	return n > 0, nil
}

// announced returns the order that an event announces.
func announced(m outbox.Message) (o publicid.ID, err error) {
	var e event
	if err := json.Unmarshal(m.Payload, &e); err != nil {
		return o, fmt.Errorf("read the event: %w", err)
	}
	if o, err = orderIDs.Parse(e.OrderID); err != nil {
		return o, fmt.Errorf("read the event: order_id: %w", err)
	}
	return o, nil
}
