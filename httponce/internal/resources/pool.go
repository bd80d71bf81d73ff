package resources

import (
	"sync"
	"time"
)

// A pool is the memory of request bodies, or that of responses. It is guarded
// by the lock of its Usage.
type pool struct {
	held    int64
	partial int64       // held by flows that wait for more
	queue   []*claimant // in the order of arrival
	nobodys int64       // places in the queue of requests that have no tenant
	flows   *Flow       // those that hold memory
	checked time.Time   // when it was last searched for silent flows
}

// A part is one tenant's part of a pool.
type part struct {
	held, partial int64 // as those of the pool
	waiting       int64 // places in the queue
}

// A Flow is a request's body while it arrives, or its response until it has been
// sent, and the memory that it holds.
//
// A Flow asks for n more bytes as one of a class: the length that it has or
// will have, by which long ones are told from short ones.
type Flow struct {
	transfer
	usage      *sync.Mutex // the lock of the Usage, which guards the fields below
	limits     *Limits
	pool       *pool
	part       *part // of its tenant; nil: it has none
	held       int64 // never changes while the Flow's own request uses it
	prev, next *Flow // in the pool
}

// A claimant is a flow that waits for n more bytes.
type claimant struct {
	*Flow
	n, class int64
	partial  int64 // the memory that it already held when it began to wait
	granted  bool
	got      chan struct{}
}

// Held returns how many bytes of memory the flow holds.
func (f *Flow) Held() int64 { return f.held }

// begin prepares the flow for a request.
func (f *Flow) begin(usage *sync.Mutex, limits *Limits, p *pool, of *part) {
	f.usage, f.limits, f.pool, f.part = usage, limits, p, of
}

// forget drops all data of a request that has ended.
func (f *Flow) forget() { f.usage, f.limits, f.pool, f.part = nil, nil, nil, nil }

// lacks reports whose memory does not suffice for n more bytes: the process's, the
// tenant's, or both. The caller holds the lock.
func (f *Flow) lacks(n, class int64) (ofAll, ofTenant bool) {
	if n == 0 {
		return false, false
	}
	all, each := f.limits.memory(class)
	free := all - f.pool.held - n
	return free < 0, f.part != nil && (f.part.held+n > each || f.part.held > f.held && isGreedy(f.part.held+n, free, all, each))
}

// isGreedy reports whether a tenant that held so much memory, or so many places in the
// queue, would leave too little free for others. A single tenant may hold its whole
// share, and each tenant that joins makes the shares of all smaller: if the share is a
// half, one may hold a half, two a third each, and three a quarter each, so that
// something is always left for another. One request of a tenant is admitted whatever
// it leaves free.
func isGreedy(held, free, all, each int64) bool {
	return float64(held)*float64(all-each) > float64(each)*float64(free)
}

// fits reports whether there are n more bytes for the flow. The caller holds
// the lock.
func (f *Flow) fits(n, class int64) bool {
	ofAll, ofTenant := f.lacks(n, class)
	return !ofAll && !ofTenant
}

// isFree reports whether the flow may have n more bytes before those that wait.
// A flow that waits for its own tenant's memory keeps out no other tenant's, and
// one that holds nothing yet keeps out none that holds some. The caller holds
// the lock.
func (f *Flow) isFree(n, class int64) bool {
	if !f.fits(n, class) {
		return false
	}
	if class <= smallFlow {
		return true
	}
	for _, c := range f.pool.queue {
		if c.partial == 0 && f.held > 0 {
			continue
		}
		if ofAll, _ := c.lacks(c.n, c.class); ofAll || c.part == f.part {
			return false
		}
	}
	return true
}

// add changes the memory of the flow by n bytes. The caller holds the lock.
func (f *Flow) add(n int64) {
	before := f.held
	f.held += n
	f.pool.held += n
	if f.part != nil {
		f.part.held += n
	}
	switch {
	case before == 0 && f.held > 0:
		f.link()
	case before > 0 && f.held == 0:
		f.unlink()
	}
}

// link adds the flow to those of the pool. The caller holds the lock.
func (f *Flow) link() {
	if f.next = f.pool.flows; f.next != nil {
		f.next.prev = f
	}
	f.pool.flows = f
}

// unlink undoes link. The caller holds the lock.
func (f *Flow) unlink() {
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

// Take takes n bytes if they are free now.
func (f *Flow) Take(n, class int64) bool {
	f.usage.Lock()
	defer f.usage.Unlock()
	if !f.isFree(n, class) {
		return false
	}
	f.add(n)
	return true
}
