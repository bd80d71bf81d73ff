package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/services/internal/page"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// Callers see only the public IDs of orders and shipments.
var (
	orderIDs    = publicid.NewType("ord_")
	shipmentIDs = publicid.NewType("shp_")
)

// The statuses of orders and shipments.
const (
	statusCreated = "created"
	statusPending = "pending"
)

// An order is an order as its tenant sees it.
type order struct {
	created
	ExternalRef *string         `json:"external_ref"`
	Items       json.RawMessage `json:"items"`
	Shipment    *shipment       `json:"shipment"` // null until the consumer has seen the order's event

	id publicid.ID
}

// A shipment is the shipment of an order.
type shipment struct {
	ID        string    `json:"id"`
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"created_at"`
}

const insertSQL = `INSERT INTO orders_orders (id, tenant, external_ref, items, total, status, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`

func (a *API) insert(ctx context.Context, tx *sql.Tx, o publicid.ID, tenant string, d draft) error {
	items, err := json.Marshal(d.Items)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, a.engine.Bind(insertSQL),
		o[:], tenant, d.ExternalRef, string(items), d.total.String(), statusCreated, o.Time().UnixMilli())
	return err
}

const selectSQL = `SELECT o.id, o.external_ref, o.items, o.total, o.status, o.created_at, s.id, s.status, s.created_at
FROM orders_orders o LEFT JOIN orders_shipments s ON s.order_id = o.id WHERE o.tenant = ?`

// find returns an order of the tenant, or errNoOrder.
func (a *API) find(ctx context.Context, tenant string, o publicid.ID) (found order, err error) {
	err = errNoOrder
	failed := a.query(ctx, func(o order) (bool, error) {
		found, err = o, nil
		return false, nil
	}, selectSQL+` AND o.id = ?`, tenant, o[:])
	if failed != nil {
		return order{}, fmt.Errorf("read an order: %w", failed)
	}
	return found, err
}

// newest adds the tenant's orders, newest first, to a page until it is full: those
// before an order or, if before is nil, all.
func (a *API) newest(ctx context.Context, tenant string, before *publicid.ID, b *page.Builder[order]) (err error) {
	if before == nil {
		err = a.query(ctx, b.Add, selectSQL+` ORDER BY o.id DESC LIMIT ?`, tenant, b.Rows())
	} else {
		err = a.query(ctx, b.Add, selectSQL+` AND o.id < ? ORDER BY o.id DESC LIMIT ?`, tenant, before[:], b.Rows())
	}
	if err != nil {
		return fmt.Errorf("list orders: %w", err)
	}
	return nil
}

// query calls add with each order that a statement returns, until add returns false.
func (a *API) query(ctx context.Context, add func(order) (takesMore bool, err error), statement string, args ...any) (err error) {
	rows, err := a.db.QueryContext(ctx, a.engine.Bind(statement), args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for takesMore := true; takesMore && rows.Next(); {
		o, err := scan(rows)
		if err != nil {
			return err
		}
		if takesMore, err = add(o); err != nil {
			return err
		}
	}
	return rows.Err()
}

func scan(rows *sql.Rows) (o order, err error) {
	var raw, shipped []byte
	var items string
	var status sql.NullString
	var made int64
	var sent sql.NullInt64
	if err := rows.Scan(&raw, &o.ExternalRef, &items, &o.Total, &o.Status, &made, &shipped, &status, &sent); err != nil {
		return o, err
	}
	copy(o.id[:], raw)
	o.ID, o.CreatedAt, o.Items = orderIDs.Format(o.id), instant(made), json.RawMessage(items)
	if shipped != nil {
		o.Shipment = &shipment{ID: shipmentIDs.Format(publicid.ID(shipped)), Status: status.String, CreatedAt: instant(sent.Int64)}
	}
	return o, nil
}

func instant(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }
