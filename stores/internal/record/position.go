package record

import (
	"bytes"
	"math"

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

// PositionOf returns where a record that was listed stands.
func PositionOf(r *onlyonce.Record) Position {
	return Position{CreatedAt: Place(r.CreatedAt), Hash: r.ID.Hash()}
}
