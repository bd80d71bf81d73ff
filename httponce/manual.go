package httponce

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/keysyntax"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
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
func ReadKey(r *http.Request) (string, error) { return ParseKey(r.Header[DefaultHeader]) }

// ParseKey is like the function ReadKey for the values of a field that is not in the header of an
// http.Request, such as the metadata of a call.
func ParseKey(values []string) (string, error) { return parseKey(&defaultKeys, values) }

// ReadKey is like the function ReadKey, with the header and the key format of
// the Config.
func (c Config) ReadKey(r *http.Request) (string, error) {
	c = c.withKeyDefaults("ReadKey")
	keys := c.KeyFormat.reader()
	return parseKey(&keys, r.Header[c.Header])
}

func parseKey(keys *keysyntax.Reader, values []string) (string, error) {
	if len(values) == 0 {
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

// A Limiter holds the keyed requests of a handler that calls onlyonce.Do or DoTx
// itself to the same limits as Wrap does, except those of memory: concurrent requests,
// new keys and stored bytes. It is safe for concurrent use.
type Limiter struct{ quota *resources.Quota }

// NewLimiter returns a Limiter for commands of g. Of cfg, it uses MaxInFlight,
// MaxNewKeys, MaxStored, MaxTenantStored and Usage, with their defaults. It panics on
// a nil Guard and on a negative limit.
func NewLimiter(g *onlyonce.Guard, cfg Config) *Limiter {
	if g == nil {
		panic("httponce: NewLimiter: the Guard is nil")
	}
	cfg = cfg.withLimitDefaults("NewLimiter")
	return &Limiter{newQuota(g, cfg)}
}

// Admit counts a request of the tenant. If a limit is reached, it returns a Problem
// with status 429 or 503. Otherwise, call Admission.Release when the request ends:
//
//	admission, err := limiter.Admit(ctx, tenant)
//	if err != nil {
//		httponce.ProblemOf(err).ServeHTTP(w, r)
//		return
//	}
//	defer admission.Release()
//	answer, err := onlyonce.Do(ctx, guard, req, func(ctx context.Context) (Receipt, error) {
//		admission.Runs(onlyonce.Current(ctx))
//		…
func (l *Limiter) Admit(ctx context.Context, tenant string) (*Admission, error) {
	a := &Admission{limiter: l}
	if p := problemOfRejection(l.quota.Admit(ctx, &a.uses, tenant, 0)); p != nil {
		return nil, *p
	}
	return a, nil
}

// An Admission is a request that a Limiter counts.
type Admission struct {
	limiter *Limiter
	uses    resources.Request
	attempt *onlyonce.Attempt // the one that ran the command; nil: none
}

// Runs says that the request runs its command, so that Release counts a new key and
// the record that the attempt leaves. Call it in the function of Do or DoTx.
func (a *Admission) Runs(attempt *onlyonce.Attempt) { a.attempt = attempt }

// Release ends the request. It has no effect after the first call.
func (a *Admission) Release() {
	isNew, stored := false, 0
	if a.attempt != nil {
		rec := a.attempt.Record()
		isNew, stored = rec.Attempt == 1, storedBytes(a.limiter.quota, &rec, headerBytes(rec.Result.Header))
	}
	a.uses.Release(isNew, stored)
}
