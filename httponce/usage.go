package httponce

import (
	"runtime"
	"sync"
	"weak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
)

// A Usage counts the resources that the keyed requests of several handlers use
// together, for the limits in their Configs. Handlers of one Guard share a
// Usage by default. Give the same Usage to handlers of several Guards that
// share one process's memory. The counters cover this process only and start at
// zero with it. The zero Usage is ready to use. A Usage must not be copied.
type Usage struct{ counters resources.Usage }

// Load returns how many keyed requests are being served, and how many bytes of
// their bodies and responses are in memory. A body counts as up to 8 KiB before
// it is read, as up to 64 KiB once these have arrived, then as up to 1 MiB, and
// then as up to twice the received size. The first 4 KiB of a response don't
// count.
func (u *Usage) Load() (requests int, bytes int64) { return u.counters.Load() }

// usages has the Usage of each Guard whose handlers were given none.
var usages sync.Map // of weak.Pointer[onlyonce.Guard] to *Usage

func usageOf(g *onlyonce.Guard) *Usage {
	guard := weak.Make(g)
	u, known := usages.LoadOrStore(guard, new(Usage))
	if !known {
		runtime.AddCleanup(g, func(guard weak.Pointer[onlyonce.Guard]) { usages.Delete(guard) }, guard)
	}
	return u.(*Usage)
}
