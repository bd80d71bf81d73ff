package record

import (
	"fmt"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// listOf returns the rows of a list whose bodies have these sizes.
func listOf(sizes []int) []Stored {
	list := make([]Stored, len(sizes))
	for i, size := range sizes {
		list[i].ID.Key, list[i].At = fmt.Sprint(i), int64(1000-i)
		list[i].Result.Body = make([]byte, size)
	}
	return list
}

func TestWalk_APageTakesLittleMemoryAndNoRecordIsLeftOut(t *testing.T) {
	const large = pageBytes/2 - 1
	repeat := func(n int, sizes ...int) (all []int) {
		for range n {
			all = append(all, sizes...)
		}
		return all
	}
	for _, c := range []struct {
		name  string
		sizes []int
	}{
		{"none", nil},
		{"small", repeat(1000, 100)},
		{"large", repeat(40, large)},
		{"too large for a page", repeat(9, pageBytes+1)},
		{"large after many small ones", append(repeat(700, 100), repeat(40, large)...)},
		{"as many as a page has", repeat(firstPage, 100)},
		{"full with the last one", append(repeat(firstPage-1, 1), pageBytes)},
		{"full with the last of all", []int{1, pageBytes}},
		{"mixed", repeat(30, 1, large, 1, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, from, reads := listOf(c.sizes), 0, 0
			n := 0
			for r, err := range Walk(onlyonce.Filter{}, func(p *Page) error {
				reads++
				for from < len(list) && list[from].At >= p.Before.CreatedAt {
					from++
				}
				bytes := 0
				for i, s := range list[from:] {
					if bytes >= pageBytes {
						t.Errorf("a page had %d bytes and took another record", bytes)
					}
					bytes += len(s.Result.Body)
					if i == p.Limit || p.Add(s) != nil {
						break
					}
				}
				return nil
			}) {
				if err != nil {
					t.Fatal(err)
				}
				if r.ID.Key != fmt.Sprint(n) {
					t.Fatalf("record %s came after %d others", r.ID.Key, n)
				}
				n++
			}
			if n != len(list) {
				t.Errorf("%d of %d records were listed", n, len(list))
			}
			if most := 12 + len(list)/2; reads > most {
				t.Errorf("the list was read in %d pages, want at most %d", reads, most)
			}
		})
	}
}

func TestWalk_ALimitBoundsWhatIsRead(t *testing.T) {
	list, read := listOf(make([]int, 100)), 0
	n := 0
	for range Walk(onlyonce.Filter{Limit: 5}, func(p *Page) error {
		for _, s := range list[:p.Limit] {
			read++
			_ = p.Add(s) // it is small
		}
		return nil
	}) {
		n++
	}
	if n != 5 || read != 5 {
		t.Errorf("%d records were listed and %d read, want 5", n, read)
	}
}
