package httponce

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// longestSilence is how long a body may send nothing while others wait for
	// memory.
	longestSilence = 500 * time.Millisecond
	// slowestBody is how many bytes a second are not silence, of a body that holds
	// little. What one holds of the first megabyte has to come within slowestWhole.
	slowestBody  = 16 << 10
	slowestWhole = 10 * time.Second
	// longestUntaken is how long a client may take nothing of a piece of its
	// answer while others wait for memory. A client of 10 KiB a second is
	// faster even on a loopback interface, where its window opens by 128 KiB
	// at a time, if its connection keeps little unsent (TCP_NOTSENT_LOWAT).
	longestUntaken = 20 * time.Second
	// pieceOfAnswer is how much of an answer is written at a time, so that a
	// slow client can be told from one that takes nothing.
	pieceOfAnswer = 16 << 10
	// silenceCheck is how often silent flows are looked for.
	silenceCheck = memoryWait / 10
)

// errSilent is why a body is not read on: it was silent while others waited for
// memory.
var errSilent = errors.New("httponce: the request's body did not come while there was no room for others")

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// A flow is a request's body while it comes, or its answer until it has left, and
// what is counted of it.
type flow struct {
	quota      *quota
	pool       *pool
	part       *part // of its tenant; nil: nobody's
	held       int64 // changed under the lock of the Usage, and never while its own request uses it
	prev, next *flow // in the pool

	mu      sync.Mutex
	w       http.ResponseWriter // while it is read or written; nil: it is not
	turns   uint64              // how often it was
	until   time.Time           // from then on it is silent
	ended   time.Time           // when that turn was ended; zero: it was not
	endless bool                // it can't be ended
}

// begin prepares for another request.
func (f *flow) begin(q *quota, p *pool, of *part) {
	f.quota, f.pool, f.part = q, p, of
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endless = false
}

// forget drops what belongs to a request that has ended.
func (f *flow) forget() { f.quota, f.pool, f.part = nil, nil, nil }

// list makes the flow one that may be ended. The caller has the lock of the Usage.
func (f *flow) list() {
	if f.next = f.pool.flows; f.next != nil {
		f.next.prev = f
	}
	f.pool.flows = f
}

// unlist undoes list. The caller has the lock of the Usage.
func (f *flow) unlist() {
	if f.next != nil {
		f.next.prev = f.prev
	}
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		f.pool.flows = f.next
	}
	f.prev, f.next = nil, nil
}

// turn begins to read or write: it is silent from until on, or as it was said before.
func (f *flow) turn(w http.ResponseWriter, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.w, f.ended = w, time.Time{}
	f.turns++
	if !until.IsZero() {
		f.until = until
	}
}

// endTurn reports whether the turn was ended.
func (f *flow) endTurn() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.w = nil
	return !f.ended.IsZero()
}

// restart prepares for the reading of a body.
func (f *flow) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = time.Now().Add(longestSilence)
}

// read reads on. Its error is errSilent if the body was ended meanwhile, and then
// nothing more can be read.
func (f *flow) read(w http.ResponseWriter, body io.Reader, p []byte) (n int, err error) {
	f.turn(w, time.Time{})
	defer func() {
		if f.endTurn() {
			err = errSilent
		}
		if err == nil {
			f.come(n)
		}
	}()
	return body.Read(p)
}

// come gives the body time for the n bytes that have come.
func (f *flow) come(n int) {
	each := min(time.Second/slowestBody, slowestWhole/time.Duration(min(max(f.held, 1), 1<<20)))
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.until.Before(now) {
		f.until = now
	}
	f.until = f.until.Add(time.Duration(n) * each)
	if most := now.Add(longestSilence); f.until.After(most) {
		f.until = most
	}
}

// deliver writes p to the client, piece by piece.
func deliver[P []byte | string](f *flow, w http.ResponseWriter, p P) (n int, err error) {
	for n < len(p) && err == nil {
		piece := p[n:min(n+pieceOfAnswer, len(p))]
		var taken int
		if taken, err = deliverPiece(f, w, piece); err == nil && taken < len(piece) {
			err = io.ErrShortWrite
		}
		n += taken
	}
	return n, err
}

func deliverPiece[P []byte | string](f *flow, w http.ResponseWriter, p P) (int, error) {
	f.turn(w, time.Now().Add(longestUntaken))
	defer f.endTurn()
	return send(w, p)
}

func send[P []byte | string](w io.Writer, p P) (int, error) {
	switch p := any(p).(type) {
	case string:
		return io.WriteString(w, p)
	case []byte:
		return w.Write(p)
	}
	return 0, nil
}

// A silence is one of a flow, during one turn.
type silence struct {
	flow   *flow
	turn   uint64
	since  time.Time
	part   *part
	frees  int64 // what it will give back
	answer bool
}

// silence returns that of a flow. One that was ended and goes on does not end by that:
// nobody may rely on what it would give back. The caller has the lock of the Usage.
func (f *flow) silence(now time.Time) (s silence, silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s = silence{f, f.turns, f.until, f.part, f.held, f.pool == &f.quota.usage.answers}
	if !f.ended.IsZero() && now.Sub(f.ended) > memoryWait {
		s.frees = 0
	}
	return s, f.w != nil && !f.endless && now.After(f.until)
}

// end ends the flow, unless its turn is over.
func (s silence) end() {
	f := s.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.w == nil || f.turns != s.turn {
		return
	}
	conn, end := http.NewResponseController(f.w), (*http.ResponseController).SetReadDeadline
	if s.answer {
		end = (*http.ResponseController).SetWriteDeadline
	}
	switch err := end(conn, longAgo); {
	case err != nil:
		f.endless = true
	case f.ended.IsZero():
		f.ended = time.Now()
	}
}

// silent returns the flows to end for those that wait for memory: those that have
// been silent for longest, as many as are needed; or none, if somebody has just
// looked.
func (p *pool) silent(u *Usage) (silent []silence) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if now.Sub(p.looked) < silenceCheck {
		return nil
	}
	p.looked = now
	all, each := int64(0), map[*part]int64{}
	for _, c := range p.queue {
		if _, ofTenant := c.lacks(c.n, c.class); ofTenant {
			each[c.part] += c.n
		} else {
			all += c.n
		}
	}
	for f := p.flows; f != nil; f = f.next {
		if s, ok := f.silence(now); ok {
			silent = append(silent, s)
		}
	}
	slices.SortFunc(silent, func(a, b silence) int { return a.since.Compare(b.since) })
	return slices.DeleteFunc(silent, func(s silence) bool {
		switch {
		case s.part != nil && each[s.part] > 0:
			each[s.part] -= s.frees
		case all > 0:
			all -= s.frees
		default:
			return true
		}
		return false
	})
}
