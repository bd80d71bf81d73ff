package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"iter"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/sqlite"
)

// A Reader reads the records of a store, and writes nothing: a role that may only SELECT, a
// SQLite file that is opened read-only, and a replica are enough for it. The records may
// be lost in a crash or a failover, which a Store would wait out. It must not decide
// whether a command runs.
type Reader struct{ engine engine.Reader }

var (
	_ onlyonce.Lister  = (*Reader)(nil)
	_ onlyonce.Counter = (*Reader)(nil)
)

// OpenReader opens a reader on a database that has been migrated. It does not check the
// settings of the database. The reader needs no closing.
func OpenReader(ctx context.Context, db *sql.DB) (*Reader, error) {
	var e engine.Reader
	err := withKind(ctx, db, func(k kind) (err error) {
		e, err = k.openReader(ctx, db)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlstore: open: %w", sqlite.ExplainDamage(err))
	}
	return &Reader{e}, nil
}

// List lists records, newest first.
func (r *Reader) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return list(ctx, r.engine, f)
}

func list(ctx context.Context, e engine.Reader, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return record.Walk(f, func(p *record.Page) error {
		if err := e.Page(ctx, f, p); err != nil {
			return fmt.Errorf("sqlstore: list: %w", err)
		}
		return nil
	})
}

// AuditTrail returns the decisions of people about the command id, oldest first.
func (r *Reader) AuditTrail(ctx context.Context, id onlyonce.ID) ([]onlyonce.AuditEntry, error) {
	return auditTrail(ctx, r.engine, id)
}

func auditTrail(ctx context.Context, e engine.Reader, id onlyonce.ID) ([]onlyonce.AuditEntry, error) {
	entries, err := e.AuditTrail(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: read the audit trail: %w", err)
	}
	return entries, nil
}

// CountRecords counts records by tenant, operation and state. It reads the whole table.
func (r *Reader) CountRecords(ctx context.Context) ([]onlyonce.RecordCount, error) {
	return countRecords(ctx, r.engine)
}

func countRecords(ctx context.Context, e engine.Reader) ([]onlyonce.RecordCount, error) {
	all, err := e.CountRecords(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: count records: %w", err)
	}
	return all, nil
}
