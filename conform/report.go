package conform

import "time"

// Draft is the document to which Row.Section refers. It is not a standard.
const Draft = "draft-ietf-httpapi-idempotency-key-header-07 (expired)"

// A Verdict says whether a promise holds.
type Verdict string

const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"
	NotSupported Verdict = "not supported" // the API lacks an optional behavior, or the behavior could not be observed: Row.Detail says which
)

// A Report says which promises a target keeps.
type Report struct {
	Target   string // method and URL
	Began    time.Time
	Took     time.Duration
	Requests int // the number of requests sent
	Rows     []Row
}

// Count returns how many rows have the verdict.
func (r Report) Count(v Verdict) int {
	n := 0
	for _, row := range r.Rows {
		if row.Verdict == v {
			n++
		}
	}
	return n
}

// Critical returns how many rows have failed that are not advisory.
func (r Report) Critical() int {
	n := 0
	for _, row := range r.Rows {
		if row.Verdict == Fail && !row.Advisory {
			n++
		}
	}
	return n
}

// A Row is one promise and the result of checking it.
type Row struct {
	ID        string // stable: Config.Only and Config.Skip name rows by it
	Title     string // the promise, as a sentence
	Verdict   Verdict
	Detail    string     // the observation
	Caveat    string     // the part of a passed row's promise that could not be observed; may be empty
	Exchanges []Exchange // the requests and responses behind the verdict
	Section   string     // the section of Draft; empty if the draft says nothing
	Advice    string     // how to fix an API for which the row fails

	// Advisory rows are about the form of responses or about choices of an API. If
	// another row fails, a command can be lost or run twice, or a caller can get the
	// response or the credentials of another.
	Advisory bool
}

// An Exchange is a request and its response, as bytes: heads are as sent and
// received, and the response body is without chunked encoding. Credentials are
// replaced by "[redacted]", and long content is truncated.
type Exchange struct {
	Note     string
	Request  []byte
	Response []byte // empty: there was no response
}
