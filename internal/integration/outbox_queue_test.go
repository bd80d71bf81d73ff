package integration

import (
	"context"
	"database/sql"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/outbox/queuetest"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A boxTx appends in a transaction of a pool's.
type boxTx struct {
	*sql.Tx
	box *sqlstore.Outbox
}

func (t boxTx) Append(ctx context.Context, messages ...outbox.Message) error {
	return t.box.Append(ctx, t.Tx, messages...)
}

// openedBox is the outbox of a store on a pool.
func openedBox(s *sqlstore.Store, db *sql.DB) queuetest.Opened {
	return queuetest.Opened{Queue: s.Outbox(), Begin: func(ctx context.Context) (queuetest.Tx, error) {
		tx, err := db.BeginTx(ctx, nil)
		return boxTx{tx, s.Outbox()}, err
	}}
}

func TestOutboxQueue_SQLiteKeepsTheRulesOfAQueue(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, func(t *testing.T) queuetest.Opened {
		s, db := newSQLite(t)
		box := openedBox(s, db)
		box.OneWriter = true
		return box
	})
}

func TestOutboxQueue_PostgresKeepsTheRulesOfAQueue(t *testing.T) {
	t.Parallel()
	_, db := newPostgresSchema(t).open(t)
	queuetest.Run(t, func(t *testing.T) queuetest.Opened {
		emptied(t, db, "onlyonce_outbox")
		return openedBox(openOn(t, db), db)
	})
}

func TestOutboxQueue_MySQLKeepsTheRulesOfAQueue(t *testing.T) {
	t.Parallel()
	for name, settings := range mysqlSettings {
		t.Run(name, func(t *testing.T) {
			if settings != nil {
				needs.Time(t)
			}
			t.Parallel()
			_, db := newMySQLDatabase(t).open(t, settings...)
			queuetest.Run(t, func(t *testing.T) queuetest.Opened {
				emptied(t, db, "onlyonce_outbox")
				return openedBox(openOn(t, db), db)
			})
		})
	}
}
