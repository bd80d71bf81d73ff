package resources

import (
	"time"

	"github.com/onlyonce-go/onlyonce/internal/shares"
)

// Limits are those of one handler's requests. All are positive.
type Limits struct {
	InFlight int // concurrent requests of one tenant
	NewKeys  int // new keys of one tenant, at once and per minute

	// Memory is how many bytes request bodies may hold, and TenantMemory is
	// the same for one tenant. Responses may hold as much again.
	Memory, TenantMemory int64

	// Stored is how many bytes of records may be stored within the time for
	// which a record is kept, and TenantStored is the same for one tenant.
	Stored, TenantStored int64

	// Unread is how long a client may read nothing of a piece of its response
	// while others wait for memory.
	Unread time.Duration
}

// smallFlow is the length up to which a body or a response may use all of its
// pool. Longer ones leave some of it (see shares.Long), so that they do not keep out
// the many short ones.
const smallFlow = 64 << 10

// memory returns how many bytes of a pool flows of the length class may hold,
// all and those of one tenant.
func (l *Limits) memory(class int64) (all, each int64) {
	all, each = l.Memory, l.TenantMemory
	if class > smallFlow {
		all, each = shares.Long(all), shares.Long(each)
	}
	return all, each
}

// keysPerSec is how fast the level of new keys falls.
func (l *Limits) keysPerSec() float64 { return float64(l.NewKeys) / 60 }
