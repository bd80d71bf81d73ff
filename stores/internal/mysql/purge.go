package mysql

import (
	"database/sql/driver"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// purgeBatch is how many rows a statement deletes.
const purgeBatch = 500

func (m *dialect) Lapse(l server.Runner, limit int) (int, error) {
	return m.change(l, "lapsed", "lapse", limit)
}

func (m *dialect) Forget(l server.Runner, limit int) (int, error) {
	return m.change(l, "forgettable", "forget", limit)
}

// change changes at most limit of the rows that a statement finds by another one, and returns
// how many.
func (m *dialect) change(l server.Runner, find, change string, limit int) (int, error) {
	now, err := l.Number("time")
	if err != nil {
		return 0, err
	}
	var ids []any
	err = l.Query(find, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		ids = append(ids, r.Bytes("id"))
		return r.Err
	}, now, int64(min(limit, purgeBatch)))
	if err != nil {
		return 0, err
	}
	return m.remove(l, change, ids, now)
}

// Purge deletes the rows that are due and not in use. A command that a transaction runs keeps
// its row, because that transaction chose its fence when it read the row.
func (m *dialect) Purge(l server.Runner, limit int) (rows, records int, err error) {
	now, err := l.Number("time")
	if err != nil {
		return 0, 0, err
	}
	var due []any
	highest := int64(0)
	err = l.Query("due", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		due = append(due, r.Bytes("id"))
		highest = max(highest, r.Int("fence"))
		return r.Err
	}, now, int64(min(limit, purgeBatch)))
	if rows = len(due); err != nil || rows == 0 {
		return rows, 0, err
	}
	upTo, err := l.Cover(highest, now, floorSpread)
	if err != nil {
		return 0, 0, err
	}
	free, err := m.free(l, upTo, due)
	if err != nil {
		return 0, 0, err
	}
	if _, err := m.remove(l, "purge", free[true], now, upTo); err != nil {
		return 0, 0, err
	}
	records, err = m.remove(l, "purge", free[false], now, upTo)
	switch {
	case len(free) == 0:
		rows = 0 // the due rows are in use
	case rows == purgeBatch:
		rows = limit // there may be more
	}
	return rows, records, err
}

// free returns the rows whose commands no transaction runs: under true those of released
// commands, under false the others. It returns none if the floor no longer covers them.
func (m *dialect) free(l server.Runner, upTo int64, ids []any) (map[bool][]any, error) {
	if floor, err := l.Number("floor"); err != nil || floor < upTo {
		l.Uncover()
		return nil, err
	}
	free := make(map[bool][]any)
	rows, err := l.DB.QueryContext(l.Ctx, m.withIDs("free", ids), append([]any{[]byte(m.database)}, ids...)...)
	if err != nil {
		return nil, err
	}
	return free, engine.Scan(rows, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		id, released := r.Bytes("id"), r.Text("state") == record.StateReleased
		free[released] = append(free[released], id)
		return r.Err
	})
}

// withIDs returns a statement with a parameter for each of the ids.
func (m *dialect) withIDs(name string, ids []any) string {
	return strings.Replace(m.texts[name], "{ids}", strings.TrimSuffix(strings.Repeat("?, ", len(ids)), ", "), 1)
}

// remove runs a statement on those rows of the ids that are still due. The other arguments of the
// statement come first.
func (m *dialect) remove(l server.Runner, name string, ids []any, args ...any) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	text := m.withIDs(name, ids)
	var n int64
	err := l.Again(func() error {
		res, err := l.DB.ExecContext(l.Ctx, text, append(slices.Clip(args), ids...)...)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return int(n), err
}
