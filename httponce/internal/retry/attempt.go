package retry

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Protocol describes how a server reports the outcome of a request with a key.
type Protocol struct {
	Header     string // of the key
	Replayed   string // the header that is "true" in a stored response
	InProgress string // the code of the problem that the first request is still running
}

// An attempt is one sending of a request, and its result.
type attempt struct {
	cancel   context.CancelCauseFunc
	resp     *http.Response
	err      error  // there is no response
	final    bool   // and another attempt will not get one
	head     []byte // the part of the body that has been read
	complete bool   // that is all of it
	broken   error  // why the rest can't be read
}

const (
	longestProblem = 64 << 10        // bytes of a problem document that are read
	longestDrain   = 64 << 10        // bytes of a discarded response that are read
	drainWithin    = 1 * time.Second // otherwise its connection is closed
)

// readBody reads as much of the body as is needed before the response is
// returned: all of it if it has at most longest bytes.
func (a *attempt) readBody(longest int64) {
	switch length := a.resp.ContentLength; {
	case a.resp.StatusCode == http.StatusSwitchingProtocols:
	case length > 0 && length <= longest:
		a.read(length + 1)
		if a.broken == nil && int64(len(a.head)) < length {
			a.broken, a.complete = io.ErrUnexpectedEOF, false
		}
	case a.resp.StatusCode == http.StatusConflict:
		a.read(longestProblem)
	}
}

func (a *attempt) read(most int64) {
	a.head, a.broken = io.ReadAll(io.LimitReader(a.resp.Body, most))
	a.complete = a.broken == nil && int64(len(a.head)) < most
}

// tooLate notes that the attempt's time is over, so that the rest of the body
// can't be read.
func (a *attempt) tooLate(slow error) {
	if a.err == nil && a.broken == nil && !a.complete && a.resp.Body != http.NoBody {
		a.broken = slow
	}
}

// worthAnother reports whether another attempt may end better.
func (a *attempt) worthAnother(p *Protocol) bool {
	if a.err != nil {
		return true
	}
	switch status := a.resp.StatusCode; status {
	case http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return !a.replayed(p) || a.broken != nil
	case http.StatusConflict:
		return a.inProgress(p)
	default:
		return a.broken != nil && status < 400
	}
}

// replayed reports whether the response is a stored one.
func (a *attempt) replayed(p *Protocol) bool { return a.resp.Header.Get(p.Replayed) == "true" }

// inProgress reports whether a 409 says that the first request is still running.
func (a *attempt) inProgress(p *Protocol) bool {
	if a.replayed(p) {
		return false
	}
	var problem struct {
		Code string `json:"code"`
	}
	return a.resp.Header.Get("Retry-After") != "" || json.Unmarshal(a.head, &problem) == nil && problem.Code == p.InProgress
}

// outcome describes the result of the attempt.
func (a *attempt) outcome() string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case a.broken != nil:
		return "the response broke off: " + a.broken.Error()
	}
	return strconv.Itoa(a.resp.StatusCode) + " " + http.StatusText(a.resp.StatusCode)
}

// response returns the response, with a body that begins with the part that has been
// read.
func (a *attempt) response() *http.Response {
	body := a.resp.Body
	switch {
	case a.resp.StatusCode == http.StatusSwitchingProtocols:
		// its body is the connection, which ends with the context
	case body == http.NoBody:
		a.cancel(nil)
	case a.complete:
		_ = body.Close()
		a.cancel(nil)
		a.resp.Body = io.NopCloser(bytes.NewReader(a.head))
	default:
		rest := io.Reader(body)
		if a.broken != nil {
			rest = failingReader{a.broken}
		}
		a.resp.Body = &resumedBody{Reader: io.MultiReader(bytes.NewReader(a.head), rest), body: body, done: a.cancel}
	}
	return a.resp
}

// discard reads the rest of a response, within bounds, so that its connection
// can be reused.
func (a *attempt) discard() {
	if a.resp != nil {
		timer := time.AfterFunc(drainWithin, func() {
			a.cancel(nil)
			_ = a.resp.Body.Close()
		})
		_, _ = io.CopyN(io.Discard, a.resp.Body, longestDrain)
		_ = a.resp.Body.Close()
		timer.Stop()
	}
	a.cancel(nil)
}

// A resumedBody is a body whose beginning has been read.
type resumedBody struct {
	io.Reader
	body io.Closer
	done context.CancelCauseFunc
}

func (r *resumedBody) Close() error {
	err := r.body.Close()
	r.done(nil)
	return err
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// retryAfter returns how long a response asks to wait, or 0 if it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text != "" && strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > math.MaxInt64/int64(time.Second) {
			return math.MaxInt64
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // the server's own clock
	}
	return max(at.Sub(now), 0)
}
