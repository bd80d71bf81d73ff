package sqlstore

import (
	"sync"
	"time"
)

// A mysqlFloor is the highest fence of all deleted records, read a moment ago.
// A record is deleted after its time is over, so its fence is below the clock,
// which is in every fence to come. Only when the clock was set back is it above:
// then who raises the floor waits until everyone has read it again.
type mysqlFloor struct {
	mu    sync.Mutex
	value int64
	at    time.Time
}

const (
	floorFresh  = time.Second
	floorSpread = 2 * floorFresh // until everyone has a floor that was raised
)

func (f *mysqlFloor) read(l line) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.at.IsZero() && time.Since(f.at) < floorFresh {
		return f.value, nil
	}
	at := time.Now()
	value, err := l.number("floor")
	if err != nil {
		return 0, err
	}
	f.value, f.at = value, at
	return value, nil
}

// raiseFloor makes every fence to come higher than one that no record has any
// more, or soon will not have.
func (l line) raiseFloor(fence, now int64) error {
	if _, err := l.exec("raise floor", fence); err != nil {
		return err
	}
	if l.dialect.engine() != engineMySQL || fence < now {
		return nil
	}
	select {
	case <-time.After(floorSpread):
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}
