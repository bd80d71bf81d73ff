package httponce

import (
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce/internal/response"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/secretname"
)

// stored returns the fields of a response's header and trailers that are stored.
// base has those that were set before the handler ran.
func (c *Config) stored(h, trailers http.Header, base *response.Snapshot) map[string][]string {
	kept := maps.Clone(h)
	if kept == nil {
		kept = make(http.Header, len(trailers))
	}
	maps.Copy(kept, trailers)
	connection := h["Connection"]
	for name, vs := range kept {
		if base.Has(name, vs) || !c.replays(name) || listed(connection, name) {
			delete(kept, name)
		}
	}
	return kept
}

// replays reports whether a header or trailer of that name is stored.
func (c *Config) replays(name string) bool {
	if c.ReplayHeader == nil && (name == "Content-Type" || name == "Location") {
		return true // the most frequent ones
	}
	name = http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix))
	if httpfield.OfConnection(name) || httpfield.OfResponse(name) {
		return false
	}
	byDefault := !secretOrStale(name)
	if c.ReplayHeader != nil {
		return c.ReplayHeader(name, byDefault)
	}
	return byDefault
}

// secretOrStale reports whether a header was meant for one client, or for the
// first time only.
func secretOrStale(name string) bool {
	switch name {
	case "Content-Type", "Content-Length", "Location", "Etag", "Cache-Control", "Vary", "Link", "Last-Modified",
		"Idempotency-Key", "Surrogate-Key":
		return false
	case "Clear-Site-Data":
		return true
	}
	return strings.HasPrefix(name, "Proxy-") || httpfield.OfOneExchange(name) || secretname.OfCredential(name)
}

// listed reports whether one of the comma-separated lists has the name.
func listed(lists []string, name string) bool {
	for _, list := range lists {
		for n := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(n), name) {
				return true
			}
		}
	}
	return false
}

// ofBody are the headers that would be wrong with an empty body.
var ofBody = [...]string{"Content-Length", "Content-Encoding", "Content-Md5", "Content-Digest", "Content-Range"}

// omitBody changes the header of a stored response so that it says that there
// is no body.
func omitBody(h map[string][]string) map[string][]string {
	for _, name := range ofBody {
		delete(h, name)
	}
	h[httpfield.Replay] = []string{"omitted"}
	return h
}

// dates formats times as HTTP dates and remembers the last one: most responses
// of one second expire in the same second.
type dates struct{ last atomic.Pointer[date] }

type date struct {
	second int64
	text   string
}

// after returns the date at which so much time will have passed.
func (d *dates) after(left time.Duration) string {
	t := time.Now().Add(left)
	if last := d.last.Load(); last != nil && last.second == t.Unix() {
		return last.text
	}
	made := &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
	d.last.Store(made)
	return made.text
}
