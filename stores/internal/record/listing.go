package record

import (
	"database/sql/driver"
	"iter"

	"github.com/onlyonce-go/onlyonce"
)

// Few is how many records a Listing reads at a time, unless they have more than pageBytes.
const Few = 64

// HowMany returns how many of the next n records are read at once, at least one: they are
// few if they are large. size returns about how many bytes the ith has.
func HowMany(n int, size func(i int) int64) int {
	n = min(n, Few)
	sum := int64(0)
	for i := range n {
		if sum += size(i); i > 0 && sum > pageBytes {
			return i
		}
	}
	return n
}

// Sequence returns the records that list yields, and then its error, if there is one.
func Sequence(list func(yield func(onlyonce.Record) bool) error) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) {
		if err := list(func(r onlyonce.Record) bool { return yield(r, nil) }); err != nil {
			yield(onlyonce.Record{}, err)
		}
	}
}

// A Listing yields the records that a filter shows, for stores whose lists first find where
// the records stand, and then read them.
type Listing[E any] struct {
	Filter *onlyonce.Filter
	Few    func(found []E) (int, error)               // how many of them are read at once: see HowMany
	Read   func(found []E) ([]onlyonce.Record, error) // those that are still there
	Yield  func(onlyonce.Record) bool
	shown  int
}

// Show yields the records that were found. It reports false once the list has ended.
func (l *Listing[E]) Show(found []E) (more bool, err error) {
	for len(found) > 0 {
		n, err := l.Few(found)
		if err != nil {
			return false, err
		}
		records, err := l.Read(found[:n])
		if err != nil {
			return false, err
		}
		for i := range records {
			if !Matches(l.Filter, &records[i]) {
				continue
			}
			if !l.Yield(records[i]) {
				return false, nil
			}
			if l.shown++; l.shown == l.Filter.Limit {
				return false, nil
			}
		}
		found = found[n:]
	}
	return true, nil
}

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
	case onlyonce.StateProcessing, onlyonce.StateCompleted, onlyonce.StateFailed, onlyonce.StateUnknown, onlyonce.StateRemembered:
	default:
		s.State = onlyonce.StateUnknown
	}
	return s, r.Err
}
