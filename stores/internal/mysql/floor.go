package mysql

import (
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// A cachedFloor is the highest fence of all deleted records, read a moment ago, because a
// claim that read it itself would lock its row. A purge that raises the floor deletes only
// when every claim uses the new one.
type cachedFloor struct {
	last    atomic.Pointer[floorRead]
	reading chan struct{} // has the one value that a reader takes and puts back
}

type floorRead struct {
	value int64
	at    time.Time
}

const (
	floorFresh  = 100 * time.Millisecond
	floorSpread = floorFresh + record.Spread // after which every claim uses a floor that was raised, or reads it again
)

func newCachedFloor() *cachedFloor {
	reading := make(chan struct{}, 1)
	reading <- struct{}{}
	return &cachedFloor{reading: reading}
}

// read returns a floor that is fresh. Before it gets old, one caller reads it again while
// the others use the last one. A caller does not wait for another one longer than for its
// own context.
func (f *cachedFloor) read(l server.Runner) (int64, error) {
	if r := f.last.Load(); r != nil && time.Since(r.at) < floorFresh {
		if time.Since(r.at) < floorFresh/2 {
			return r.value, nil
		}
		select {
		case <-f.reading:
		default:
			return r.value, nil
		}
	} else {
		select {
		case <-f.reading:
		case <-l.Ctx.Done():
			return 0, l.Ctx.Err()
		}
	}
	defer func() { f.reading <- struct{}{} }()
	if r := f.last.Load(); r != nil && time.Since(r.at) < floorFresh/2 {
		return r.value, nil
	}
	at := time.Now()
	value, err := l.Number("floor")
	if err != nil {
		return 0, err
	}
	f.last.Store(&floorRead{value, at})
	return value, nil
}
