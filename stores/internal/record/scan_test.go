package record

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// at returns the record of a scan that was created at a time.
func at(created int64) Listed {
	l := Listed{Position: Position{CreatedAt: created}, Size: 1}
	binary.BigEndian.PutUint64(l.Hash[:], uint64(created))
	return l
}

func TestScan_YieldsEveryRecordOnceAndTheNewestFirst(t *testing.T) {
	const all = 5*scanned/2 + 7
	for name, most := range map[string]int{"any number at once": 0, "three at once": 3} {
		var shown []int64
		scan := Scan{
			Filter: &onlyonce.Filter{},
			All: func(found *Newest) error {
				found.Add(at(2 * all)) // it is gone when the scan starts over
				found.Reset()
				for _, n := range rand.Perm(all) {
					found.Add(at(int64(n + 1)))
					if n%2 == 0 {
						found.Add(at(int64(n + 1)))
					}
				}
				return nil
			},
			Read: func(found []Listed) (records []onlyonce.Record, err error) {
				if most > 0 && len(found) > most {
					t.Fatalf("%s: %d are read", name, len(found))
				}
				for i := range found {
					records = append(records, onlyonce.Record{Fence: found[i].CreatedAt})
				}
				return records, nil
			},
			Most:  most,
			Yield: func(r onlyonce.Record) bool { shown = append(shown, r.Fence); return true },
		}
		if err := scan.Run(); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(shown)
		for i, n := range shown {
			if n != int64(i+1) {
				t.Fatalf("%s: record %d from the end is that of %d", name, i+1, n)
			}
		}
		if len(shown) != all {
			t.Errorf("%s: %d of %d records are shown", name, len(shown), all)
		}
	}
}

func TestScan_AnErrorEndsIt(t *testing.T) {
	failed := errors.New("the server is gone")
	scans := 0
	scan := Scan{
		Filter: &onlyonce.Filter{},
		All: func(found *Newest) error {
			if scans++; scans > 1 {
				return failed
			}
			for n := range int64(scanned) {
				found.Add(at(n + 1))
			}
			return nil
		},
		Read:  func([]Listed) ([]onlyonce.Record, error) { return nil, nil },
		Yield: func(onlyonce.Record) bool { return true },
	}
	if err := scan.Run(); !errors.Is(err, failed) || scans != 2 {
		t.Errorf("%d scans, then %v, want two and the error of the second", scans, err)
	}
}
