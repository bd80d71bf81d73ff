package httponce

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

// An attempt is one time that a request was sent, and what came of it.
type attempt struct {
	cancel context.CancelCauseFunc
	resp   *http.Response
	err    error  // there is no answer
	final  bool   // nor will there be
	head   []byte // what has been read of the body
	whole  bool   // that is all of it
	broken error  // why its rest can't be read
}

const (
	longestProblem = 64 << 10        // of what says why a request is refused
	longestDrain   = 64 << 10        // of what is left of an answer that is not wanted
	drainWithin    = 1 * time.Second // else its connection is closed
)

// readAnswer reads the body as far as it is needed before the answer is
// returned.
func (a *attempt) readAnswer(longest int64) {
	switch length := a.resp.ContentLength; {
	case a.resp.StatusCode == http.StatusSwitchingProtocols:
	case length > 0 && length <= longest:
		a.read(length + 1)
		if a.broken == nil && int64(len(a.head)) < length {
			a.broken, a.whole = io.ErrUnexpectedEOF, false
		}
	case a.resp.StatusCode == http.StatusConflict:
		a.read(longestProblem)
	}
}

func (a *attempt) read(most int64) {
	a.head, a.broken = io.ReadAll(io.LimitReader(a.resp.Body, most))
	a.whole = a.broken == nil && int64(len(a.head)) < most
}

// tooLate notes that the attempt's time was up: what is left of the body can't
// be read.
func (a *attempt) tooLate(slow error) {
	if a.err == nil && a.broken == nil && !a.whole && a.resp.Body != http.NoBody {
		a.broken = slow
	}
}

// worthAnother reports whether another attempt may end better.
func (a *attempt) worthAnother() bool {
	if a.err != nil {
		return true
	}
	switch status := a.resp.StatusCode; status {
	case http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return !a.replayed() || a.broken != nil
	case http.StatusConflict:
		return a.inProgress()
	default:
		return a.broken != nil && status < 400
	}
}

// replayed reports whether the answer is the first one's, stored.
func (a *attempt) replayed() bool { return a.resp.Header.Get(headerReplayed) == "true" }

// inProgress tells the 409 of a request that is still running from others.
func (a *attempt) inProgress() bool {
	if a.replayed() {
		return false
	}
	var problem struct {
		Code string `json:"code"`
	}
	return a.resp.Header.Get("Retry-After") != "" || json.Unmarshal(a.head, &problem) == nil && problem.Code == inProgress.Code
}

// outcome says what came of the attempt.
func (a *attempt) outcome() string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case a.broken != nil:
		return "the answer broke off: " + a.broken.Error()
	}
	return strconv.Itoa(a.resp.StatusCode) + " " + http.StatusText(a.resp.StatusCode)
}

// give returns the answer to the caller.
func (a *attempt) give() *http.Response {
	body := a.resp.Body
	switch {
	case a.resp.StatusCode == http.StatusSwitchingProtocols:
		// its body is the connection, which ends with the context
	case body == http.NoBody:
		a.cancel(nil)
	case a.whole:
		_ = body.Close()
		a.cancel(nil)
		a.resp.Body = io.NopCloser(bytes.NewReader(a.head))
	default:
		rest := io.Reader(body)
		if a.broken != nil {
			rest = failingReader{a.broken}
		}
		a.resp.Body = &replayableBody{Reader: io.MultiReader(bytes.NewReader(a.head), rest), body: body, done: a.cancel}
	}
	return a.resp
}

// discard reads what is left of an answer, so that its connection can be used
// again, within bounds.
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

// A replayableBody is a body of which the beginning was read.
type replayableBody struct {
	io.Reader
	body io.Closer
	done context.CancelCauseFunc
}

func (r *replayableBody) Close() error {
	err := r.body.Close()
	r.done(nil)
	return err
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// retryAfter returns how long an answer asks to wait, or 0 if it doesn't.
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
