package record

import (
	"bytes"
	"cmp"
	"math"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// A Position is where a record stands in the list, which is ordered by created_at
// and, where that is not unique, by hash.
type Position struct {
	CreatedAt int64
	Hash      [32]byte
}

// Top is where a list begins.
var Top = Position{CreatedAt: math.MaxInt64, Hash: [32]byte(bytes.Repeat([]byte{0xff}, 32))}

// PositionOf returns where a record that was listed stands. One without an ID, because it could
// not be decoded, stands behind every other of its instant, so that no page shows it again.
func PositionOf(r *onlyonce.Record) Position {
	if r.ID == (onlyonce.ID{}) {
		return Position{CreatedAt: Place(r.CreatedAt)}
	}
	return Position{CreatedAt: Place(r.CreatedAt), Hash: r.ID.Hash()}
}

// Compare is positive if a stands before b in the list, which has the newest first.
func (a *Position) Compare(b *Position) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), bytes.Compare(a.Hash[:], b.Hash[:]))
}

// After returns the position after which a filter's list begins.
func After(f *onlyonce.Filter) Position {
	if f.FromNewest() {
		return Top
	}
	return PositionOf(&f.After)
}

// Only returns the ID of the only record that a filter can show. It reports false if the
// filter does not name one, or its list begins behind a record.
func Only(f *onlyonce.Filter) (id onlyonce.ID, ok bool) {
	id = onlyonce.ID{Tenant: f.Tenant, Operation: f.Operation, Key: f.Key}
	return id, id.Tenant != "" && id.Operation != "" && id.Key != "" && f.FromNewest()
}

// Matches reports whether a filter shows a record, wherever its list begins.
func Matches(f *onlyonce.Filter, r *onlyonce.Record) bool {
	return (f.Tenant == "" || f.Tenant == r.ID.Tenant) && (f.Operation == "" || f.Operation == r.ID.Operation) &&
		(f.Key == "" || f.Key == r.ID.Key) && (f.Ref == "" || f.Ref == r.Result.Ref) && (f.State == "" || f.State == r.State) &&
		(!f.Unresolved || r.Unresolved()) && (f.IDPrefix == "" || strings.HasPrefix(r.ID.HexHash(), f.IDPrefix))
}
