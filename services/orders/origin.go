package orders

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/broker"
)

// headerOrigin is the header of an event with the name of the database of its order.
const headerOrigin = "Onlyonce-Orders-Origin"

const (
	originSQL     = `SELECT id FROM orders_origin WHERE one = 1`
	nameOriginSQL = `INSERT INTO orders_origin (one, id) VALUES (1, ?)`
)

// readOrigin returns the name of the database, which is random. The first process gives it
// one.
func (a *API) readOrigin(ctx context.Context) (name string, err error) {
	err = a.db.QueryRowContext(ctx, originSQL).Scan(&name)
	if !errors.Is(err, sql.ErrNoRows) {
		return name, err
	}
	_, named := a.db.ExecContext(ctx, a.engine.Bind(nameOriginSQL), rand.Text())
	if err = a.db.QueryRowContext(ctx, originSQL).Scan(&name); err != nil {
		return "", errors.Join(named, err)
	}
	return name, nil // which another process may have given at the same time
}

// logForeignEvery is how often the log says that events of another database arrive.
const logForeignEvery = time.Minute

// checkOrigin returns an error for an event of another database, which has to be delivered to
// that one's consumer. An event that another program has published may have no origin.
func (a *API) checkOrigin(ctx context.Context, m outbox.Message) error {
	origin := m.Headers[headerOrigin]
	if origin == "" || origin == a.origin {
		return nil
	}
	err := fmt.Errorf("the event %s comes from another database of orders: start each with a broker name of its own: %w", m.ID, broker.ErrElsewhere)
	now := time.Now().UnixNano()
	if last := a.foreignAt.Load(); now-last >= int64(logForeignEvery) && a.foreignAt.CompareAndSwap(last, now) {
		a.cfg.Log.ErrorContext(ctx, "orders: another database uses the same broker name", "event", "inbox_foreign", "message_id", m.ID, "broker_name", a.cfg.BrokerName, "error", err)
	}
	return err
}
