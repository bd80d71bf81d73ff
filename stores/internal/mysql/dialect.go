// Package mysql is the engine for MySQL and MariaDB.
package mysql

import (
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/flush"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

//go:embed statements.sql
var statementsFile string

//go:embed outbox.sql
var outboxFile string

//go:embed group.sql
var groupFile string

var texts = record.Blocks(record.Expiry("{now}").Replace(statementsFile + groupFile + outboxFile + engine.Common + engine.Unnumbered + server.Common))

// dialect is the dialect of MySQL and MariaDB.
type dialect struct {
	texts      map[string]string // the statements; once the store is open, they are for this store only
	database   string            // is in the names of locks, which are the server's
	packet     int               // max_allowed_packet
	foundRows  bool              // a row that a statement left as it was counts as changed
	binlog     bool              // a commit is on disk before others see it
	fenceFloor *cachedFloor
	flush      flush.Flusher
}

// table matches the names of the tables in the statements, and of no index.
var table = regexp.MustCompile(`\bonlyonce_(records|fence|flush|outbox|outbox_lock|outbox_audit|audit)\b`)

// textsIn returns the statements for the store in a database, whichever one the session
// uses: a function may have set another one, which its connection keeps. server is the SQL of
// the server's name, and txReadOnly the variable of a session whose transactions can only read.
func textsIn(database string, store identity, server, txReadOnly string) map[string]string {
	name := "`" + strings.ReplaceAll(database, "`", "``") + "`."
	in := make(map[string]string, len(texts))
	for statement, text := range texts {
		text = store.in(strings.NewReplacer("{server}", server, "{tx_read_only}", txReadOnly).Replace(text))
		in[statement] = table.ReplaceAllStringFunc(text, func(table string) string { return name + table })
	}
	return in
}

func (*dialect) Schema() int { return len(Migrations) }

func (m *dialect) Statements() map[string]string { return m.texts }

func (*dialect) Decode(values []driver.Value) record.Stored {
	row := record.Read(values)
	s := row.Record()
	if len(values) > record.Columns { // a list has no more
		more := record.Reader{Values: values[record.Columns:]}
		s.Server = more.Int("server")
	}
	return s
}

func (*dialect) EncodeText(s string) any { return []byte(s) }

func (m *dialect) List(f onlyonce.Filter, p *record.Page) (string, []any) {
	name, ids := record.ListStatement(f)
	text, values := record.List(m.texts[name], f, record.Anonymous, 0)
	args := []any{p.Before.CreatedAt, p.Before.CreatedAt, p.Before.Hash[:]}
	for _, id := range ids {
		args = append(args, id)
	}
	for _, v := range values {
		args = append(args, []byte(v))
	}
	return text, append(args, int64(p.Limit))
}

func (*dialect) DecodeText(s string) string { return s }

func (m *dialect) Audited(l server.Runner, name string, decision []any, entry server.AuditArgs) (changed int64, err error) {
	err = l.Transact(sql.LevelDefault, func(in server.Runner) (err error) {
		changed, err = in.Change(name, decision...)
		if changed > 0 && err == nil {
			_, err = in.Exec("audit", append([]any{entry.ID.Hash}, entry.List()...)...)
		}
		return err
	})
	return changed, err
}

// How many bytes the columns of an ID hold.
const (
	longestGroup = 1024 // a tenant or an operation
	longestKey   = 4096
)

// CheckID rejects an ID that is longer than its columns.
func (*dialect) CheckID(id onlyonce.ID) error {
	for _, part := range []struct {
		name, value string
		longest     int
	}{{"tenant", id.Tenant, longestGroup}, {"operation", id.Operation, longestGroup}, {"key", id.Key, longestKey}} {
		if len(part.value) > part.longest {
			return fmt.Errorf("the %s has %d bytes, and the table holds %d: use a shorter one, such as its hash", part.name, len(part.value), part.longest)
		}
	}
	return nil
}

// CheckPacketSize rejects arguments so large that the server would close the connection.
func (m *dialect) CheckPacketSize(args []any) error {
	size := 0
	for _, arg := range args {
		switch v := arg.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	if headroom := 64 << 10; m.packet > 0 && size > m.packet-headroom {
		return fmt.Errorf("%w: %d bytes, and max_allowed_packet is %d", server.ErrTooLarge, size, m.packet)
	}
	return nil
}

func (m *dialect) Claim(l server.Runner, a server.ClaimArgs) (fence int64, granted bool, err error) {
	if l.Tx != nil {
		return m.Grant(l, "claim in", a.List())
	}
	floor, err := m.fenceFloor.read(l)
	if err != nil {
		return 0, false, err
	}
	return m.Grant(l, "claim", claim(a, floor))
}

func (*dialect) Grant(l server.Runner, name string, args []any) (fence int64, granted bool, err error) {
	return lastID(l.Exec(name, args...))
}

// lastID returns the last insert id, by which a statement returns a number. It reports
// false if the statement changed no row, or returned none.
func lastID(res sql.Result, err error) (id int64, set bool, _ error) {
	if err != nil {
		return 0, false, err
	}
	changed, err := res.RowsAffected()
	if err != nil || changed == 0 {
		return 0, false, err
	}
	id, err = res.LastInsertId()
	return id, id > 0, err
}
