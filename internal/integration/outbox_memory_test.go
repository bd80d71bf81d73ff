package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A rowsConnector calls ended when all rows of a query that contains part were read.
type rowsConnector struct {
	driver.Connector
	part  string
	ended func()
}

func (c *rowsConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &rowsConn{conn.(wholeConn), c}, nil
}

type rowsConn struct {
	wholeConn
	connector *rowsConnector
}

func (c *rowsConn) CheckNamedValue(v *driver.NamedValue) error {
	return c.wholeConn.(driver.NamedValueChecker).CheckNamedValue(v)
}

func (c *rowsConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.wholeConn.QueryContext(ctx, text, args)
	if err != nil || !strings.Contains(text, c.connector.part) {
		return rows, err
	}
	return endingRows{rows, c.connector.ended}, nil
}

type endingRows struct {
	driver.Rows
	ended func()
}

func (r endingRows) Next(values []driver.Value) error {
	err := r.Rows.Next(values)
	if errors.Is(err, io.EOF) {
		r.ended()
	}
	return err
}

// A relay that has leased many small messages at a time may meet large ones.
func TestOutboxQueue_ALeaseHoldsNoMoreInMemoryThanItReturns(t *testing.T) {
	needs.Time(t)
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	const size, many = 8 << 20, 16
	appendOne(t, s, db, outbox.Message{Topic: "t", Payload: make([]byte, size)})
	if _, err := db.Exec(`
INSERT INTO onlyonce_outbox (id, topic, ordering_key, tenant, headers, payload, created_at)
SELECT id || n, topic, ordering_key, tenant, headers, payload, created_at FROM onlyonce_outbox, generate_series(2, $1::integer) n`, many); err != nil {
		t.Fatal(err)
	}
	cfg, err := pgx.ParseConfig(schema.with(t))
	if err != nil {
		t.Fatal(err)
	}
	var before, most int64
	c := &rowsConnector{Connector: stdlib.GetConnector(*cfg), part: "payload", ended: func() { most = inUse() - before }}
	pool := sql.OpenDB(c)
	t.Cleanup(func() { pool.Close() })
	q := openOn(t, pool).Outbox()
	before = inUse()
	list, err := q.Lease(t.Context(), "owner", time.Minute, 500)
	if err != nil || len(list) != outbox.MaxLeaseBytes/size {
		t.Fatalf("leased %d messages with error %v", len(list), err)
	}
	if most < outbox.MaxLeaseBytes/2 || most > 3*outbox.MaxLeaseBytes { // other parts of the heap shrink meanwhile
		t.Errorf("a lease of %d MiB held %d MiB in memory", outbox.MaxLeaseBytes>>20, most>>20)
	}
}
