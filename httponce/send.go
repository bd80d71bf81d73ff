package httponce

import (
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
	"github.com/onlyonce-go/onlyonce/httponce/internal/response"
	"github.com/onlyonce-go/onlyonce/httponce/internal/rpcstatus"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// replay sends the stored response of an attempt.
func (c *call) replay(a *onlyonce.Attempt) {
	c.restoreHeader()
	rec := a.Record()
	n := c.replayMemory(&rec.Result, c.readFields(rec.Result.Header))
	if n > 0 {
		c.dropBody()
	}
	c.quota.SetReplay(c.command(), n)
	if lacks := n - c.uses.Response.Held(); lacks <= 0 || c.uses.Response.Take(lacks, n+response.Uncounted) {
		c.sendReplay(a, &rec)
		return
	}
	c.uses.Response.GiveBack()
	c.replayLater(n)
}

// expectReplay takes the memory of the replay that the call is probably about to get,
// before the response is read from the store. It returns why it can't, or nil. Many
// repeats would otherwise each hold a response that there is no memory to send, and
// keep the store from other tenants.
func (c *call) expectReplay() *Problem {
	n := c.quota.Replay(c.command())
	if n == 0 || c.uses.Response.Take(n, n+response.Uncounted) {
		return nil
	}
	return problemOfRejection(c.uses.Response.Wait(c.r.Context(), n, n+response.Uncounted))
}

// expectNoReplay undoes expectReplay for a call that runs its handler.
func (c *call) expectNoReplay() {
	if c.response == nil && c.uses.Response.Held() > 0 {
		c.uses.Response.GiveBack()
		c.quota.SetReplay(c.command(), 0)
	}
}

// command names the call's command for its quota.
func (c *call) command() resources.Command {
	id := &c.request.ID
	return resources.Command{Tenant: id.Tenant, Operation: id.Operation, Key: id.Key}
}

// replayLater is replay for a stored response of which n bytes need memory, as soon
// as there is memory. The response is read again then: requests that wait hold none.
func (c *call) replayLater(n int64) {
	if rejected := c.uses.Response.Wait(c.r.Context(), n, n+response.Uncounted); rejected != nil {
		c.reject(*problemOfRejection(rejected))
		return
	}
	a, err := c.guard.Begin(c.r.Context(), c.request)
	if err != nil {
		c.rejectError(err)
		return
	}
	rec := a.Record()
	switch {
	case !a.Replayed(): // the record is gone, and so is the body with which the command could run
		_ = a.Settle(c.r.Context(), onlyonce.Settlement{}) // observed
		c.reject(overloaded)
	case c.replayMemory(&rec.Result, c.readFields(rec.Result.Header)) > n: // it is another one
		c.reject(overloaded)
	default:
		c.sendReplay(a, &rec)
	}
}

// replayMemory returns how many bytes of a stored response, whose header has so many,
// need memory. The same part of its header as of its body needs none. It is never more
// than one request may have, because the header was recorded without being counted.
func (pt *protection) replayMemory(r *onlyonce.Result, header int) int64 {
	body := beyondUncounted(len(r.Body))
	return max(body, min(body+beyondUncounted(header), pt.cfg.mostMemory()))
}

func beyondUncounted(n int) int64 { return max(int64(n)-response.Uncounted, 0) }

// headerBytes returns the length of the names and values of a header.
func headerBytes(h http.Header) (n int) {
	for name, vs := range h {
		n += field{name, vs}.length()
	}
	return n
}

// A field is a field of a header. To range over a list of them takes less than to range
// over the header again.
type field struct {
	name   string
	values []string
}

func (f field) length() (n int) {
	for _, v := range f.values {
		n += len(f.name) + len(v)
	}
	return n
}

// readFields replaces the fields by those of h, and returns the result of headerBytes.
func (b *buffers) readFields(h http.Header) (n int) {
	b.fields = b.fields[:0]
	for name, values := range h {
		f := field{name, values}
		b.fields = append(b.fields, f)
		n += f.length()
	}
	return n
}

// mostFields is the length of the longest list of fields whose memory is used again.
const mostFields = 64

func (b *buffers) dropFields() {
	if clear(b.fields); cap(b.fields) > mostFields {
		b.fields = nil
	}
	b.fields = b.fields[:0]
}

// sendReplay sends the stored response of an attempt and its record, whose fields have
// been read and for which there is memory.
func (c *call) sendReplay(a *onlyonce.Attempt, rec *onlyonce.Record) {
	if rec.State == onlyonce.StateFailed && rec.Result.Status == 0 {
		p := failureKept
		p.Err = a.Err()
		c.reject(p)
		return
	}
	if rec.Result.Header[httpfield.Replay] != nil && rpcstatus.LacksMessage(c.r.Header, rec.Result.Status, withTrailers(rec.Result.Header)) {
		c.reject(responseOmitted)
		return
	}
	h := c.w.Header()
	all := make([]string, 0, len(c.fields)+2) // the store's own slices are not given away
	add := func(vs ...string) []string {
		from := len(all)
		all = append(all, vs...)
		return all[from:len(all):len(all)]
	}
	for _, f := range c.fields {
		h[f.name] = add(f.values...)
	}
	if _, ok := h["Content-Type"]; !ok && len(rec.Result.Body) > 0 {
		h["Content-Type"] = nil // as it was the first time: net/http must not detect one
	}
	h[httpfield.Replayed] = add("true")
	if expires(rec) {
		h[httpfield.Expires] = add(c.dates.after(replayLeft(rec)))
	}
	c.w.WriteHeader(max(rec.Result.Status, http.StatusOK))
	c.send(rec.Result.Body)
}

// sendResponse sends the handler's response. recorded is the record that has it; nil:
// none has.
func (c *call) sendResponse(recorded *onlyonce.Record) {
	if recorded != nil && expires(recorded) {
		c.response.SetField(httpfield.Expires, c.dates.after(replayLeft(recorded)))
	}
	c.response.SendHeader()
	c.send(c.response.Body())
}

// sendEnd sends the end of a response that streamed.
func (c *call) sendEnd() {
	c.release()
	c.response.SendEnd()
}

// send sends a response's body, which ends the request. A client that has the
// last byte may send another request at once, which must not meet a quota that
// still counts this one.
func (c *call) send(body []byte) {
	if len(body) == 0 {
		return
	}
	if len(body) > response.Uncounted {
		if c.input != nil {
			_ = c.input.Close()
		}
		c.dropBody()
	}
	last := len(body) - 1
	if c.uses.IsCounted() && last > 0 {
		if _, err := resources.Deliver(&c.uses.Response, c.w, body[:last]); err != nil {
			return // a client that went away retries
		}
		body = body[last:]
	}
	c.release()
	_, _ = c.w.Write(body)
}

// expires reports whether a record is replayed until it expires.
func expires(r *onlyonce.Record) bool {
	return replayLeft(r) > 0 && r.Concluded()
}

// replayLeft returns for how long the result of a record is kept; 0: until someone resolves it.
func replayLeft(r *onlyonce.Record) time.Duration {
	if r.Result.Keep > 0 && (r.KeepLeft <= 0 || r.Result.Keep < r.KeepLeft) {
		return r.Result.Keep
	}
	return max(r.KeepLeft, 0)
}

// recordBytes is the size of a record in addition to its response and its error.
const recordBytes = 512

// account notes how many bytes are stored of the call, whose attempt left rec in
// the store.
func (c *call) account(rec *onlyonce.Record) {
	header := headerBytes(rec.Result.Header)
	c.stored = storedBytes(c.quota, rec, header)
	if n := c.replayMemory(&rec.Result, header); c.stored > 0 && n > 0 {
		c.quota.SetReplay(c.command(), n)
	}
}

// storedBytes returns how many bytes a record counts that an attempt left in the store
// and whose header has so many, and tells the quota how long it is kept.
func storedBytes(q *resources.Quota, rec *onlyonce.Record, header int) int {
	if rec.State == "" { // released
		return 0
	}
	if left := replayLeft(rec); left > 0 {
		q.SetKeep(left)
	}
	return recordBytes + len(rec.Error) + header + len(rec.Result.Body)
}
