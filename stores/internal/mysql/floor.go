package mysql

import (
	"sync"
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
	reading sync.Mutex
}

type floorRead struct {
	value int64
	at    time.Time
}

const (
	floorFresh  = 100 * time.Millisecond
	floorSpread = floorFresh + record.Spread // after which every claim uses a floor that was raised, or reads it again
)

// read returns a floor that is fresh. Before it gets old, one caller reads it again while
// the others use the last one.
func (f *cachedFloor) read(l server.Runner) (int64, error) {
	if r := f.last.Load(); r != nil && time.Since(r.at) < floorFresh {
		if time.Since(r.at) < floorFresh/2 || !f.reading.TryLock() {
			return r.value, nil
		}
	} else {
		f.reading.Lock()
	}
	defer f.reading.Unlock()
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
