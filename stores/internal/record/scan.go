package record

import (
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

// A Scan lists the records of a filter for a store that has no index of them by age: it
// reads where all records stand, keeps the newest, reads and yields those, and starts over
// behind the last of them.
type Scan struct {
	Filter *onlyonce.Filter
	All    func(found *Newest) error                       // adds every record of the store
	Read   func(found []Listed) ([]onlyonce.Record, error) // those that are still there
	Most   int                                             // how many records Read can read at once; 0: any number
	Yield  func(onlyonce.Record) bool
}

// Run yields the records, newest first.
func (s *Scan) Run() error {
	listing := Listing[Listed]{
		Filter: s.Filter,
		Few: func(found []Listed) (int, error) {
			n := HowMany(len(found), func(i int) int64 { return found[i].Size })
			if s.Most > 0 {
				n = min(n, s.Most)
			}
			return n, nil
		},
		Read:  s.Read,
		Yield: s.Yield,
	}
	for after := After(s.Filter); ; {
		newest := Newest{after: after}
		if err := s.All(&newest); err != nil {
			return err
		}
		newest.trim()
		more, err := listing.Show(newest.found)
		if !more || len(newest.found) < scanned {
			return err
		}
		after = newest.found[scanned-1].Position
	}
}

// A Listed record says where a record stands, and about how large it is.
type Listed struct {
	Position
	Size int64
}

// scanned is how many records a scan keeps.
const scanned = 1 << 14

// Newest keeps the newest records, up to a number of them, that stand after a position.
type Newest struct {
	after Position
	found []Listed
}

// Add adds a record. A record that is added twice is kept once.
func (n *Newest) Add(l Listed) {
	if l.Compare(&n.after) >= 0 {
		return
	}
	if n.found = append(n.found, l); len(n.found) >= 2*scanned {
		n.trim()
	}
}

// Reset removes all records, for a scan that has to start over.
func (n *Newest) Reset() { n.found = n.found[:0] }

// trim sorts the records, newest first, and removes those that are too many.
func (n *Newest) trim() {
	slices.SortFunc(n.found, func(a, b Listed) int { return b.Compare(&a.Position) })
	n.found = slices.CompactFunc(n.found, func(a, b Listed) bool { return a.Position == b.Position })
	n.found = n.found[:min(len(n.found), scanned)]
}
