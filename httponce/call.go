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

// A protection holds the state that the calls of one handler share.
type protection struct {
	guard *onlyonce.Guard
	cfg   Config
	keys  keysyntax.Reader
	quota *resources.Quota
	dates dates

	summary *summarizer // nil: records have no summary
}

func newProtection(g *onlyonce.Guard, cfg Config) *protection {
	summary, _ := newSummarizer(cfg.Summary) // withDefaults has checked it
	return &protection{guard: g, cfg: cfg, keys: cfg.KeyFormat.reader(), quota: newQuota(g, cfg), summary: summary}
}

// newQuota returns the quota of a Config that has its defaults.
func newQuota(g *onlyonce.Guard, cfg Config) *resources.Quota {
	u := cfg.Usage
	if u == nil {
		u = usageOf(g)
	}
	return resources.NewQuota(&u.counters, cfg.limits())
}

// A call is a request that is protected, or that runs in a transaction.
type call struct {
	state
	buffers
}

// A state is the part of a call that belongs to its request.
type state struct {
	*protection
	w        http.ResponseWriter
	r        *http.Request
	request  onlyonce.Request
	attempt  *onlyonce.Attempt  // the one that ran the handler; nil: none
	input    *body              // the body that the handler reads
	response *response.Response // of the handler; nil: it has not run
	stored   int                // bytes that were stored
}

// Buffers are memory that calls use one after another. Nothing that outlives the call
// refers to it: see Memory in the documentation of the package.
type buffers struct {
	text           []byte  // the input of the fingerprint, which ends with the body
	body           []byte  // the end of text
	fields         []field // of the stored response that is replayed
	fingerprintBuf fingerprint.Scratch
	headers        response.Scratch
	uses           resources.Request
}

var calls = sync.Pool{New: func() any { return new(call) }}

// newCall returns the call of a request. The caller calls recycle when the
// response has been sent.
func newCall(pt *protection, w http.ResponseWriter, r *http.Request) *call {
	c := calls.Get().(*call)
	c.state = state{protection: pt, w: w, r: r}
	return c
}

// reused is called with memory that another request may use from now on; nil: it is not.
// The package's tests overwrite it.
var reused func([]byte)

// recycle drops all data of the request.
func (c *call) recycle() {
	c.state = state{}
	if reused != nil {
		reused(c.text[:cap(c.text)])
	}
	c.dropText()
	c.dropFields()
	c.fingerprintBuf.Clear()
	c.headers.Clear()
	c.uses.Forget()
	calls.Put(c)
}

// longestKept is the length of the longest text whose memory is reused.
const longestKept = 64 << 10

func (b *buffers) dropText() {
	if b.body = nil; cap(b.text) > longestKept {
		b.text = nil
	}
	b.text = b.text[:0]
}

// requestWithBody returns the request for a handler, with its body, which has been read.
func (c *call) requestWithBody(ctx context.Context, b *body) *http.Request {
	b.data = c.body
	c.input = b
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

// dropBody drops the request's body before the response is sent, because sending may
// take long and nothing reads the body after the handler has returned.
func (c *call) dropBody() {
	if c.uses.Body.Held() == 0 {
		return
	}
	c.text, c.body = nil, nil
	c.uses.Body.GiveBack()
}

// release releases the call's share of the memory and of its tenant's quota.
func (c *call) release() {
	c.uses.Release(c.attempt != nil && c.attempt.Number() == 1, c.stored)
}
