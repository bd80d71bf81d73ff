package record

import (
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A settled record stays for at least briefest. If a statement that gives a fence took
// longer than Slow, by the clock of the process that sent it, the process reads the floor of
// deleted fences again. A purge raises that floor and deletes only Spread later: by then,
// every statement that read the lower floor has either inserted its row, or its process
// reads the floor again.
const (
	briefest = 100 * time.Millisecond
	Slow     = 50 * time.Millisecond
	Spread   = 2 * Slow
)

// Keep returns for how many microseconds a settled record stays; nil: until someone
// resolves it.
func Keep(st *onlyonce.Settlement) *int64 {
	if st.Keep <= 0 {
		return nil
	}
	keep := max(st.Keep, briefest).Microseconds()
	return &keep
}

// LapsedKeep returns for how many microseconds a claim's record stays once its lease
// has lapsed; 0: until someone resolves it.
func LapsedKeep(c *onlyonce.Claim) int64 {
	if c.Keep <= 0 {
		return 0
	}
	return max(c.Keep, briefest).Microseconds()
}

// Expires is the instant at which a row's record expires, or NULL. A settled record expires
// by the column expires_at; a processing one when its lapsed_keep has passed since its
// lease lapsed. The column stays NULL meanwhile, so that a claim and a renewal write to no
// index for it. No sum exceeds 64 bits, whatever the columns hold, because the error
// would fail every statement that reads the row.
const Expires = "CASE WHEN state <> 'processing' THEN expires_at WHEN lapsed_keep <= 0 THEN NULL" +
	" WHEN lease_until > 9223372036854775807 - lapsed_keep THEN 9223372036854775807 ELSE lease_until + lapsed_keep END"

// FenceKeep is how long the row of a released command stays, for its fence.
const FenceKeep = time.Hour

// Expiry replaces, in a file of statements, {expires}; {fence_keep}, which is FenceKeep
// in microseconds; {unexpired}, which says by the clock now that a processing row's
// record has not expired; and {purgeable}, which says that the floor may be raised to
// the row's fence.
func Expiry(now string) *strings.Replacer {
	return strings.NewReplacer("{expires}", Expires,
		"{fence_keep}", strconv.FormatInt(FenceKeep.Microseconds(), 10),
		"{unexpired}", "CASE WHEN lapsed_keep > 0 THEN lease_until > "+now+" - lapsed_keep ELSE lapsed_keep <= 0 END",
		"{purgeable}", "fence <= "+strconv.FormatInt(MaxFence, 10))
}
