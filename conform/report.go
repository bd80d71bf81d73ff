package conform

import "time"

// Draft is what Row.Section counts in. It is no standard.
const Draft = "draft-ietf-httpapi-idempotency-key-header-07 (expired)"

// A Verdict says whether a promise holds.
type Verdict string

const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"
	NotSupported Verdict = "not supported" // the API does not have it and need not, or it could not be seen: Row.Detail says which
)

// A Report says which promises a target keeps.
type Report struct {
	Target   string // method and URL
	Began    time.Time
	Took     time.Duration
	Requests int // how many were sent
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

// A Row is one promise.
type Row struct {
	ID        string // stable: Config.Only and Config.Skip name rows by it
	Title     string // the promise, a sentence
	Verdict   Verdict
	Detail    string     // what was seen
	Exchanges []Exchange // the requests and answers that show it
	Section   string     // of Draft; empty where it is silent
	Advice    string     // what to do if the row fails
}

// An Exchange is a request and its answer, as bytes: heads as they were sent and
// received, the answer's body without its chunks. Credentials are replaced by
// "[redacted]", and what is long is cut.
type Exchange struct {
	Note    string
	Request []byte
	Answer  []byte // empty: there was none
}
