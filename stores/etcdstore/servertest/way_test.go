package servertest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// A way leads connections to an address until it is cut.
type way struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	isCut bool
	after string     // the text that makes it deaf
	deaf  bool       // what comes back is lost
	frail *rand.Rand // how many bytes a connection lasts; nil: it lasts
	conns map[net.Conn]bool
}

func newWay(t testing.TB, to string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{listener: l, to: to, conns: make(map[net.Conn]bool)}
	t.Cleanup(func() { l.Close(); w.cut() })
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

func (w *way) address() string { return w.listener.Addr().String() }

func (w *way) lead(in net.Conn) {
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

func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for c := range w.conns {
		c.Close()
	}
}

func (w *way) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut, w.deaf = false, false
}

// deafen loses what comes back once a text has been sent, until the way is cut and opened
// again.
func (w *way) deafen(after string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = after
}

// weaken cuts every connection that is made from now on after some bytes in each direction.
func (w *way) weaken(r *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frail = r
}

// forward is where a way leads to.
type forward struct {
	way *way
	net.Conn
	sent []byte // the last bytes
}

func (f *forward) Write(p []byte) (int, error) {
	f.way.mu.Lock()
	f.sent = append(f.sent, p...)
	if after := f.way.after; after != "" && bytes.Contains(f.sent, []byte(after)) {
		f.way.deaf, f.way.after = true, ""
	}
	f.sent = bytes.Clone(f.sent[max(0, len(f.sent)-100):])
	f.way.mu.Unlock()
	return f.Conn.Write(p)
}

// backward is where a way leads back to.
type backward struct {
	way *way
	net.Conn
}

func (b backward) Write(p []byte) (int, error) {
	b.way.mu.Lock()
	deaf := b.way.deaf
	b.way.mu.Unlock()
	if deaf {
		return len(p), nil
	}
	return b.Conn.Write(p)
}
