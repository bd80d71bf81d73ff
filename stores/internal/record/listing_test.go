package record

import (
	"errors"
	"slices"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestHowMany_RecordsAreFewIfTheyAreLarge(t *testing.T) {
	for _, c := range []struct {
		n    int
		size int64
		want int
	}{{0, 1, 0}, {1, 1 << 30, 1}, {5, 1 << 30, 1}, {5, pageBytes / 2, 2}, {5, pageBytes/2 + 1, 1}, {5, 1, 5}, {Few + 1, 1, Few}} {
		if n := HowMany(c.n, func(int) int64 { return c.size }); n != c.want {
			t.Errorf("of %d records of %d bytes, %d are read at once, want %d", c.n, c.size, n, c.want)
		}
	}
}

func TestListing_ShowsMatchingRecordsUntilItHasEnded(t *testing.T) {
	failed := errors.New("the server is gone")
	for name, c := range map[string]struct {
		limit, stopAfter, failAt int
		want                     []int
		err                      error
	}{
		"all that match":  {0, 0, 0, []int{2, 4, 6, 8}, nil},
		"a limit":         {3, 0, 0, []int{2, 4, 6}, nil},
		"a caller's end":  {0, 2, 0, []int{2, 4}, nil},
		"an error":        {0, 0, 7, []int{2, 4, 6}, failed},
		"none behind one": {1, 0, 2, []int{2}, nil},
	} {
		var shown []int
		list := func(yield func(onlyonce.Record) bool) error {
			l := Listing[int]{
				Filter: &onlyonce.Filter{State: onlyonce.StateCompleted, Limit: c.limit},
				Few:    func(found []int) (int, error) { return min(2, len(found)), nil },
				Read: func(found []int) (records []onlyonce.Record, err error) {
					for _, n := range found {
						if c.failAt != 0 && n > c.failAt {
							return nil, failed
						}
						state := onlyonce.StateFailed
						if n%2 == 0 {
							state = onlyonce.StateCompleted
						}
						records = append(records, onlyonce.Record{State: state, Attempt: n})
					}
					return records, nil
				},
				Yield: yield,
			}
			for _, found := range [][]int{{1, 2, 3}, {4, 5, 6}, {7, 8}} {
				if more, err := l.Show(found); !more {
					return err
				}
			}
			return nil
		}
		var got error
		for r, err := range Sequence(list) {
			if err != nil {
				got = err
				break
			}
			if shown = append(shown, r.Attempt); len(shown) == c.stopAfter {
				break
			}
		}
		if !slices.Equal(shown, c.want) || !errors.Is(got, c.err) {
			t.Errorf("%s: shown %v, error %v, want %v, error %v", name, shown, got, c.want, c.err)
		}
	}
}
