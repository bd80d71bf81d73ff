package httponce

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// ReadKey returns the request's idempotency key, for a handler that calls
// onlyonce.Do or DoTx itself. The header and the form of the key are those of
// the zero Config. Without a key, or with one that is not well-formed, refusal is
// what to answer.
func ReadKey(r *http.Request) (key string, refusal *Problem) {
	return defaultKeys.readFrom(r, "Idempotency-Key")
}

// ReadKey is the function ReadKey for the header and the form of the key that the
// Config says.
func (c Config) ReadKey(r *http.Request) (key string, refusal *Problem) {
	c.MaxKeyLength = cmp.Or(c.MaxKeyLength, defaultMaxKey)
	keys := newKeyForm(c)
	return keys.readFrom(r, http.CanonicalHeaderKey(cmp.Or(c.Header, "Idempotency-Key")))
}

func (f *keyForm) readFrom(r *http.Request, header string) (key string, refusal *Problem) {
	values, given := r.Header[header]
	if !given {
		missing := keyMissing
		return "", &missing
	}
	key, wrong := f.read(values)
	if wrong == "" {
		return key, nil
	}
	invalid := keyInvalid
	invalid.Detail = wrong
	return "", &invalid
}

var defaultKeys = newKeyForm(Config{MaxKeyLength: defaultMaxKey})

// PreferredWait returns how long the request's "Prefer: wait=N" (RFC 7240) asks
// to wait, at most longest, as onlyonce.Request.Wait takes it: 0 without one, and
// negative if N is 0.
func PreferredWait(r *http.Request, longest time.Duration) time.Duration {
	if longest == 0 {
		return 0
	}
	for _, v := range r.Header["Prefer"] {
		for p := range strings.SplitSeq(v, ",") {
			p, _, _ = strings.Cut(p, ";")
			name, value, _ := strings.Cut(p, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(value, ` "`), 10, 31)
			switch {
			case err != nil:
				return 0
			case n == 0:
				return -1
			}
			return min(time.Duration(n)*time.Second, longest)
		}
	}
	return 0
}

// ProblemOf says what an error of onlyonce.Do or DoTx means to a client. One that
// is not the package's own is the command's: its text is for logs only.
func ProblemOf(err error) Problem { return problemOf(err, commandFailed) }

func problemOf(err error, otherwise Problem) Problem {
	p := otherwise
	var busy *onlyonce.InFlightError
	switch {
	case errors.Is(err, onlyonce.ErrMismatch):
		p = keyReused
	case errors.As(err, &busy):
		p = inProgress
		p.RetryAfter = min(max(busy.RetryAfter, time.Second), longestRetryAfter)
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrInFlight):
		p = inProgress
		p.RetryAfter = time.Second
	case errors.Is(err, onlyonce.ErrUnknown), errors.Is(err, onlyonce.ErrCorrupt):
		p = outcomeUnknown
	case errors.Is(err, onlyonce.ErrFailed):
		p = failureKept
	case errors.Is(err, onlyonce.ErrUnavailable):
		p = storeUnavailable
	}
	p.Err = err
	return p
}
