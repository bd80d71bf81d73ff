package proxycmd

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
)

// A policy has the settings that determine a Guard.
type policy struct {
	lease, keep, remember, wait time.Duration
	hold                        bool
}

func policyOf(s *proxyfile.Settings) policy {
	return policy{s.Lease, s.Keep, s.Remember, s.Wait, s.Unknown == proxyfile.UnknownHold}
}

// forget makes the Guards in use ask the store for the record when it is needed next.
func (b *routeBuilder) forget(id onlyonce.ID) {
	for _, guard := range *b.guards.Load() {
		guard.Forget(id)
	}
}

// guardsFor returns a Guard for each policy in f. Those in use are kept, unless they have a
// cache and there are now more or fewer Guards that share its memory.
func (b *routeBuilder) guardsFor(f *proxyfile.File) map[policy]*onlyonce.Guard {
	next := map[policy]*onlyonce.Guard{policyOf(&f.Defaults): nil}
	for i := range f.Routes {
		next[policyOf(&f.Routes[i].Settings)] = nil
	}
	current := *b.guards.Load()
	keep := f.Store.Cache == 0 || len(next) == len(current)
	for p := range next {
		if next[p] = current[p]; next[p] == nil || !keep {
			next[p] = onlyonce.New(b.store, onlyonce.Config{
				Lease: p.lease, Keep: p.keep, Remember: p.remember, Wait: p.wait, HoldUnknown: p.hold, Observer: b.observer, Traceparent: b.tracing.Traceparent(),
				CacheBytes: int64(f.Store.Cache) / int64(len(next)), CacheMaxAge: f.Store.CacheMaxAge,
			})
		}
	}
	return next
}
