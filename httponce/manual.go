package httponce

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce/internal/keysyntax"
)

// ReadKey returns the request's idempotency key, for a handler that calls
// onlyonce.Do or DoTx itself. The header and the format of the key are those of
// the zero Config. If the key is missing or malformed, the error is a Problem,
// which ProblemOf returns:
//
//	key, err := httponce.ReadKey(r)
//	if err != nil {
//		httponce.ProblemOf(err).ServeHTTP(w, r)
//		return
//	}
func ReadKey(r *http.Request) (string, error) { return readKey(&defaultKeys, r, DefaultHeader) }

// ReadKey is like the function ReadKey, with the header and the key format of
// the Config.
func (c Config) ReadKey(r *http.Request) (string, error) {
	c = c.withKeyDefaults("ReadKey")
	keys := c.KeyFormat.reader()
	return readKey(&keys, r, c.Header)
}

func readKey(keys *keysyntax.Reader, r *http.Request, header string) (string, error) {
	values, present := r.Header[header]
	if !present {
		return "", keyMissing
	}
	key, wrong := keys.Read(values)
	if wrong == "" {
		return key, nil
	}
	return "", invalidKey(wrong)
}

var defaultKeys = Config{}.withKeyDefaults("").KeyFormat.reader()

// PreferredWait returns the wait that the request's "Prefer: wait=N" (RFC 7240)
// asks for, but at most longest. The result is meant for onlyonce.Request.Wait:
// it is 0 if there is no such preference and negative if N is 0.
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
