package record

import (
	"database/sql/driver"

	"github.com/onlyonce-go/onlyonce"
)

// ReadCount reads a row of the statement "count records". decode undoes what the store did to
// texts. A state that no store writes is an unknown outcome.
func ReadCount(v []driver.Value, decode func(string) string) (onlyonce.RecordCount, error) {
	r := Reader{Values: v}
	s := onlyonce.RecordCount{
		Tenant: decode(r.Text("tenant")), Operation: decode(r.Text("operation")), State: onlyonce.State(r.Text("state")), Lapsed: r.Int("lapsed") != 0,
		Count: int(r.Int("count")),
	}
	s.Oldest = max(Between(r.Int("created_at"), r.Int("now")), 0)
	switch s.State {
	case onlyonce.StateProcessing, onlyonce.StateCompleted, onlyonce.StateFailed, onlyonce.StateUnknown:
	default:
		s.State = onlyonce.StateUnknown
	}
	return s, r.Err
}
