package conform

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAnswer is the longest body that is read; with its head and its chunks, an
// answer has at most maxRead bytes.
const (
	maxAnswer = 4 << 20
	maxRead   = 2 * maxAnswer
)

// An answer is what a request got. A status of 0 means that there was none, for
// the reason in lost.
type answer struct {
	status int
	header http.Header
	head   []byte
	body   []byte
	lost   string
	took   time.Duration
}

// readAnswer reads the final answer to a request with the method.
func readAnswer(from io.Reader, method string) (answer, error) {
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(io.LimitReader(from, maxRead), &raw))
	for {
		begins := raw.Len() - in.Buffered()
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return answer{}, err
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		a := answer{status: resp.StatusCode, header: resp.Header, head: head(raw.Bytes()[begins:])}
		if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
			return answer{}, fmt.Errorf("the answer breaks off: %w", err)
		}
		if len(a.body) > maxAnswer {
			return answer{}, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
		}
		return a, resp.Body.Close()
	}
}

func head(raw []byte) []byte {
	end := bytes.Index(raw, []byte("\r\n\r\n"))
	if end < 0 {
		end = len(raw)
	}
	return bytes.Clone(raw[:end])
}

func (a answer) ok() bool      { return a.status/100 == 2 }
func (a answer) refused() bool { return a.status/100 == 4 }

// String says in a few words what was answered.
func (a answer) String() string {
	if a.status == 0 {
		return "nothing (" + a.lost + ")"
	}
	return strconv.Itoa(a.status)
}

// retryAfter is how long an answer asks to wait, at most 2 s, or otherwise.
func (a answer) retryAfter(otherwise time.Duration) time.Duration {
	if s, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil && s >= 0 {
		return min(time.Duration(s)*time.Second, 2*time.Second)
	}
	return otherwise
}

// busy reports whether an answer says: not now, ask again.
func (a answer) busy() bool {
	switch a.status {
	case http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		return a.header.Get("Retry-After") != ""
	}
	return false
}

// meant are the headers that are part of what was answered. Others are about a
// connection, a moment, or who carried the answer.
var meant = []string{
	"Content-Type", "Content-Language", "Content-Encoding", "Content-Disposition",
	"Content-Location", "Location", "Etag", "Last-Modified", "Link",
}

// parts are what two answers have in common if one is the other's replay.
func (a answer) parts() map[string]string {
	p := map[string]string{"the status": strconv.Itoa(a.status), "the body": string(a.body)}
	for _, name := range meant {
		p[name] = strings.Join(a.header.Values(name), "\n")
	}
	return p
}

// differences names the parts in which two answers differ.
func differences(a, b answer) []string {
	of, other := a.parts(), b.parts()
	return slices.Sorted(func(yield func(string) bool) {
		for name := range maps.Keys(of) {
			if of[name] != other[name] && !yield(name) {
				return
			}
		}
	})
}

// mark returns the header by which an answer says that it is a replay.
func (a answer) mark() string {
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		value := strings.ToLower(a.header.Get(name))
		switch name := strings.ToLower(name); {
		case value == "false" || value == "0" || value == "no" || value == "":
		case strings.Contains(name, "replay"),
			strings.Contains(name, "idempoten") && (strings.Contains(value, "replay") || strings.Contains(value, "cached") || strings.Contains(value, "duplicate") || value == "hit"):
			return http.CanonicalHeaderKey(name)
		}
	}
	return ""
}

var errNoAnswer = errors.New("the connection was closed")

// noAnswer is the answer that did not come.
func noAnswer(err error, within time.Duration) answer {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		err = fmt.Errorf("not within %v", within)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errNoAnswer
	}
	return answer{lost: err.Error()}
}
