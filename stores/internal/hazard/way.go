package hazard

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A Way leads connections to an address until it is cut.
type Way struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	isCut bool
	after string     // the text that makes it deaf
	deaf  bool       // the responses are lost
	frail *rand.Rand // how many bytes a connection lasts; nil: it lasts
	left  [2]int     // how many bytes pass there and back until their connection breaks; negative: any number
	conns map[net.Conn]bool

	stopped  sync.RWMutex // locked while nothing is read
	received atomic.Int64 // how many bytes have come back
}

// NewWay returns a way that lasts for the test.
func NewWay(t testing.TB, to string) *Way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Way{listener: l, to: to, conns: make(map[net.Conn]bool), left: [2]int{-1, -1}}
	t.Cleanup(func() { l.Close(); w.Cut() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.lead(c)
		}
	}()
	return w
}

// Address is where the way begins.
func (w *Way) Address() string { return w.listener.Addr().String() }

func (w *Way) lead(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer out.Close()
	w.mu.Lock()
	if w.isCut {
		w.mu.Unlock()
		return
	}
	w.conns[in], w.conns[out] = true, true
	var there, back io.Reader = in, out
	if w.frail != nil {
		const most = 64 << 10
		there, back = io.LimitReader(in, 100+w.frail.Int64N(most)), io.LimitReader(out, 100+w.frail.Int64N(most))
	}
	w.mu.Unlock()
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(&forward{way: w, Conn: out}, there); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(backward{w, in}, back); ended <- struct{}{} }()
	<-ended
	w.mu.Lock()
	delete(w.conns, in)
	delete(w.conns, out)
	w.mu.Unlock()
}

// Received returns how many bytes have come back.
func (w *Way) Received() int64 { return w.received.Load() }

// Cut breaks every connection, and rejects new ones until Open.
func (w *Way) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for c := range w.conns {
		c.Close()
	}
}

// Open lets connections through again.
func (w *Way) Open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut, w.deaf = false, false
}

// Deafen drops the responses once a text has been sent, until the way is cut and opened
// again.
func (w *Way) Deafen(after string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = after
}

// Weaken cuts every connection that is made from now on after some bytes in each direction.
func (w *Way) Weaken(r *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frail = r
}

// The directions of CutAfter.
const (
	There = iota
	Back
)

// CutAfter breaks the connection over which one more byte than n comes in a direction.
// Before that byte, all others pass.
func (w *Way) CutAfter(direction, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left[direction] = n
}

// HasCut reports whether a connection broke since CutAfter. If not, it undoes CutAfter.
func (w *Way) HasCut(direction int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := w.left[direction] >= 0
	w.left[direction] = -1
	return !waits
}

// pass returns the part of p that may pass, and an error if the connection breaks then.
func (w *Way) pass(direction int, p []byte) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := &w.left[direction]
	switch {
	case *left < 0:
		return p, nil
	case *left >= len(p):
		*left -= len(p)
		return p, nil
	}
	p, *left = p[:*left], -1
	return p, net.ErrClosed
}

// Stop reads nothing more, as if the server were frozen, until the end of the test.
func (w *Way) Stop(t testing.TB) {
	w.stopped.Lock()
	t.Cleanup(w.stopped.Unlock)
}

func (w *Way) write(direction int, c net.Conn, p []byte) (int, error) {
	passes, end := w.pass(direction, p)
	n, err := c.Write(passes)
	if err == nil {
		err = end
	}
	return n, err
}

// forward is where a way leads to.
type forward struct {
	way *Way
	net.Conn
	sent []byte // the last bytes
}

func (f *forward) Write(p []byte) (int, error) {
	f.way.stopped.RLock()
	defer f.way.stopped.RUnlock()
	f.way.mu.Lock()
	f.sent = append(f.sent, p...)
	if after := f.way.after; after != "" && bytes.Contains(f.sent, []byte(after)) {
		f.way.deaf, f.way.after = true, ""
	}
	f.sent = bytes.Clone(f.sent[max(0, len(f.sent)-100):])
	f.way.mu.Unlock()
	return f.way.write(There, f.Conn, p)
}

// backward is where a way leads back to.
type backward struct {
	way *Way
	net.Conn
}

func (b backward) Write(p []byte) (int, error) {
	b.way.mu.Lock()
	deaf := b.way.deaf
	b.way.mu.Unlock()
	if deaf {
		return len(p), nil
	}
	b.way.received.Add(int64(len(p)))
	return b.way.write(Back, b.Conn, p)
}
