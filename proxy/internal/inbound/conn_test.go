package inbound

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// timed is a connection that notes until when it may write.
type timed struct {
	net.Conn
	until time.Time
}

func (c *timed) Write(p []byte) (int, error)        { return len(p), nil }
func (c *timed) SetWriteDeadline(t time.Time) error { c.until = t; return nil }
func (c *timed) SetReadDeadline(time.Time) error    { return nil }
func (c *timed) allows(from, to time.Duration) bool {
	d := time.Until(c.until)
	return from < d && d <= to
}

func TestConn_AClientThatTakesNothingHasAMinute(t *testing.T) {
	below := &timed{}
	c := newScannedConn(below)
	for _, end := range []func(time.Time) error{c.SetWriteDeadline, c.SetDeadline} {
		_, _ = c.Write([]byte("x"))
		if !below.allows(WriteTime, 2*WriteTime) {
			t.Errorf("it may write until %v", below.until)
		}
		if err := end(time.Time{}); err != nil || !below.until.IsZero() { // as net/http does after each response
			t.Error(err)
		}
	}
	_, _ = c.Write([]byte("x"))
	if !below.allows(WriteTime, 2*WriteTime) {
		t.Errorf("for another response it may write until %v", below.until)
	}
	c.allowAt.Store(int64(time.Since(c.made)))
	below.until = time.Time{}
	_, _ = c.Write([]byte("x"))
	if !below.allows(WriteTime, 2*WriteTime) {
		t.Errorf("after a while it may write until %v", below.until)
	}
}

// meanwhile is a timed that does something before it notes a time.
type meanwhile struct {
	timed
	first func()
}

func (c *meanwhile) SetWriteDeadline(t time.Time) error {
	if f := c.first; f != nil {
		c.first = nil
		f()
	}
	return c.timed.SetWriteDeadline(t)
}

func TestConn_AResponseThatIsCutOffWhileItGetsTimeStaysCutOff(t *testing.T) {
	below, done := &meanwhile{}, make(chan struct{})
	c := newScannedConn(below)
	cutOff := func() {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
		close(done)
	}
	below.first = func() {
		if c.mu.TryLock() { // nothing keeps them apart
			c.mu.Unlock()
			cutOff()
			return
		}
		go cutOff()
	}
	_, _ = c.Write([]byte("x"))
	<-done
	if !below.until.Equal(time.Unix(1, 0)) {
		t.Errorf("it may write until %v", below.until)
	}
}

func TestConn_ADeadlineThatIsSetHoldsIfItIsTheEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &timed{}
		c := newScannedConn(below)
		for _, set := range []func(time.Time) error{c.SetWriteDeadline, c.SetDeadline} {
			_, _ = c.Write([]byte("x"))
			ends := time.Now().Add(2 * time.Minute)
			if err := set(ends); err != nil {
				t.Error(err)
			}
			for range 20 {
				if !below.until.After(time.Now()) || below.until.After(ends) || time.Until(below.until) > 2*WriteTime {
					t.Errorf("%v before the deadline, it may write for %v", time.Until(ends), time.Until(below.until))
				}
				_, _ = c.Write([]byte("x"))
				time.Sleep(5 * time.Second)
			}
			time.Sleep(WriteTime)
			if _, _ = c.Write([]byte("x")); !below.until.Equal(ends) {
				t.Errorf("after the deadline, %v, it may write until %v", ends, below.until)
			}
			if err := set(time.Time{}); err != nil { // for another response
				t.Error(err)
			}
		}
	})
}

func TestConn_AResponseThatIsCutOffGetsNoTime(t *testing.T) {
	below := &timed{}
	c := newScannedConn(below)
	for _, end := range []func(time.Time) error{c.SetWriteDeadline, c.SetDeadline} {
		if err := end(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		_, _ = c.Write([]byte("x"))
		if !below.until.Equal(time.Unix(1, 0)) {
			t.Errorf("it may write until %v", below.until)
		}
		if err := end(time.Time{}); err != nil { // for another response
			t.Error(err)
		}
		_, _ = c.Write([]byte("x"))
		if !below.allows(WriteTime, 2*WriteTime) {
			t.Errorf("for another response it may write until %v", below.until)
		}
	}
}
