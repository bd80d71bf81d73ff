package sqlrow

import "strings"

// Expires is when a row's record expires, or NULL: a settled one by its column,
// and one that is processing when its lapsed_keep has passed since its lease
// lapsed. The column stays NULL meanwhile, so that a claim and a renewal touch
// no index for it.
const Expires = "CASE state WHEN 'processing' THEN nullif(lapsed_keep, 0) + lease_until ELSE expires_at END"

// Expiry replaces {expires}, and {unexpired}, which says by the clock now that a
// processing row's record has not expired.
func Expiry(now string) *strings.Replacer {
	return strings.NewReplacer("{expires}", Expires, "{unexpired}", "(lapsed_keep = 0 OR lease_until + lapsed_keep > "+now+")")
}
