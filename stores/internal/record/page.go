package record

import (
	"errors"
	"iter"

	"github.com/onlyonce-go/onlyonce"
)

// A Page is a part of a list. A store reads it whole, so that no transaction is open
// while the caller looks at a record.
type Page struct {
	Before Position // its records come after it
	Limit  int      // of records

	records []Stored
	bytes   int
	full    bool
}

const (
	firstPage   = 16 // records: their size is not known yet
	largestPage = 200
	pageBytes   = 8 << 20 // about how many bytes of records a list reads at a time
)

// ErrPageFull is the error of Add for a page that takes no more records, because those it
// has are large. It ends the reading of rows.
var ErrPageFull = errors.New("the page has no room for more")

// Add adds the next record of the list.
func (p *Page) Add(s Stored) error {
	p.records = append(p.records, s)
	if p.bytes += s.size(); p.bytes < pageBytes {
		return nil
	}
	p.full = true
	return ErrPageFull
}

// Clear makes the page empty, to be read again.
func (p *Page) Clear() { p.records, p.bytes, p.full = nil, 0, false }

// size is about how many bytes the record takes.
func (s *Stored) size() int {
	n := len(s.Result.Body) + len(s.Result.Ref) + len(s.Result.Traceparent) + len(s.Error)
	for name, values := range s.Result.Header {
		n += len(name)
		for _, value := range values {
			n += len(value)
		}
	}
	for name, result := range s.Steps {
		n += len(name) + len(result)
	}
	text, _ := s.StepsAs.(string)
	return n + len(text)
}

// Walk lists the records of f, newest first. It reads them by pages, which grow while the
// records are small. read need not filter by the state of f, or by
// whether a record is unresolved, which only one that has been decoded shows.
func Walk(f onlyonce.Filter, read func(*Page) error) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) {
		before, left := After(&f), f.Limit
		for limit := firstPage; ; {
			p := Page{Before: before, Limit: limit}
			if f.State == "" && !f.Unresolved && left > 0 {
				p.Limit = min(limit, left)
			}
			if err := read(&p); err != nil {
				yield(onlyonce.Record{}, err)
				return
			}
			for i := range p.records {
				s := &p.records[i]
				before = Position{CreatedAt: s.At, Hash: s.ID.Hash()}
				isGone := f.Ref != "" && s.State == onlyonce.StateRemembered // the ref that the row still has
				if f.State != "" && f.State != s.State || f.Unresolved && !s.Unresolved() || isGone {
					continue
				}
				if !yield(s.Record, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			switch n := len(p.records); {
			case p.full:
				limit = n
			case n < p.Limit:
				return
			default:
				limit = min(2*limit, largestPage)
			}
		}
	}
}
