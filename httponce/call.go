package httponce

import (
	"context"
	"net/http"
	"sync"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/fingerprint"
	"github.com/onlyonce-go/onlyonce/httponce/internal/keysyntax"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
	"github.com/onlyonce-go/onlyonce/httponce/internal/response"
)

// A layer is what the calls of one handler have in common.
type layer struct {
	guard *onlyonce.Guard
	cfg   Config
	keys  keysyntax.Reader
	quota *resources.Quota
	dates dates
}

func newLayer(g *onlyonce.Guard, cfg Config) *layer {
	u := cfg.Usage
	if u == nil {
		u = usageOf(g)
	}
	return &layer{guard: g, cfg: cfg, keys: cfg.KeyFormat.reader(), quota: resources.NewQuota(&u.counters, cfg.limits())}
}

// A call is a request that the layer protects, or runs in a transaction.
type call struct {
	state
	buffers
}

// A state is what a call is about.
type state struct {
	*layer
	w        http.ResponseWriter
	r        *http.Request
	request  onlyonce.Request
	attempt  *onlyonce.Attempt  // that ran the handler; nil: none
	given    *body              // to the handler
	response *response.Response // of the handler; nil: it has not run
	stored   int                // bytes that were stored
}

// Buffers are memory that calls use one after another. Nothing that a handler
// can reach refers to it once the handler has returned.
type buffers struct {
	text    []byte // what the fingerprint is of, and then the body
	body    []byte // the end of text
	print   fingerprint.Scratch
	headers response.Scratch
	uses    resources.Request
}

var calls = sync.Pool{New: func() any { return new(call) }}

// newCall returns the call of a request. The caller calls recycle when the
// response has been sent.
func newCall(l *layer, w http.ResponseWriter, r *http.Request) *call {
	c := calls.Get().(*call)
	c.state = state{layer: l, w: w, r: r}
	return c
}

// recycle drops what belongs to the request.
func (c *call) recycle() {
	c.state = state{}
	c.dropText()
	c.print.Clear()
	c.headers.Clear()
	c.uses.Forget()
	calls.Put(c)
}

// longestKept is the length of the longest text whose memory is used again.
const longestKept = 64 << 10

func (b *buffers) dropText() {
	if b.body = nil; cap(b.text) > longestKept {
		b.text = nil
	}
	b.text = b.text[:0]
}

// give returns the request for a handler, with its body, which has been read.
func (c *call) give(ctx context.Context, b *body) *http.Request {
	b.data = c.body
	c.given = b
	r := c.r.WithContext(ctx)
	if r.Body != http.NoBody {
		r.Body = b
	}
	return r
}

// restoreHeader drops the header that a handler has set.
func (c *call) restoreHeader() {
	if c.response != nil {
		c.headers.Base.Restore(c.w.Header())
	}
}

// dropBody drops the request's body, which nobody reads any more, before the
// response is sent to its client: that may take long.
func (c *call) dropBody() {
	if c.uses.Body.Held() == 0 {
		return
	}
	c.text, c.body = nil, nil
	c.uses.Body.GiveBack()
}

// release releases what the call uses of memory and of its tenant's quota.
func (c *call) release() {
	c.uses.Release(c.attempt != nil && c.attempt.Number() == 1, c.stored)
}
