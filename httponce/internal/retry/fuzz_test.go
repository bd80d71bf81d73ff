package retry

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// FuzzRetryAfter holds that whatever a server says, the wait is not negative,
// what is made longer stays so, and whole seconds are understood exactly.
func FuzzRetryAfter(f *testing.F) {
	for _, after := range []string{"", "0", "7", "007", "-1", "+1", "1.5", " 1", "99999999999999999999", "9223372036", "9223372037", "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"} {
		f.Add(after, "Sun, 06 Nov 1994 08:49:30 GMT")
		f.Add(after, "")
	}
	f.Fuzz(func(t *testing.T, after, date string) {
		h := http.Header{"Retry-After": {after}, "Date": {date}}
		wait := retryAfter(h, time.Now())
		if wait < 0 || lengthen(wait) < wait {
			t.Fatalf("%q at %q: waits %v", after, date, wait)
		}
		n, err := strconv.ParseUint(after, 10, 31) // takes no sign
		if err == nil && wait != time.Duration(n)*time.Second {
			t.Fatalf("%q: waits %v", after, wait)
		}
	})
}
