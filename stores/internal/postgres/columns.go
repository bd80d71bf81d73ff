package postgres

import (
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// ClaimColumns returns the arguments of the statement "claims", an array for each
// column.
func ClaimColumns[T any](list []T, of func(T) (id *[32]byte, c *onlyonce.Claim)) []any {
	n := len(list)
	ids, fingerprints, owners := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	keeps, leases := make([]int64, n), make([]int64, n)
	tenants, operations, keys := make([]string, n), make([]string, n), make([]string, n)
	for i, one := range list {
		id, c := of(one)
		ids[i], fingerprints[i], owners[i], keeps[i], leases[i] = id[:], record.EncodePrint(c.Fingerprint, c.Summary), []byte(c.Owner), record.LapsedKeep(c), c.Lease.Microseconds()
		tenants[i], operations[i], keys[i] = Escape(c.ID.Tenant), Escape(c.ID.Operation), Escape(c.ID.Key)
	}
	return []any{ids, tenants, operations, keys, fingerprints, owners, keeps, leases}
}

// SettleColumns returns the arguments of the statement "settles", an array for
// each column.
func SettleColumns[T any](list []T, of func(T) (id *[32]byte, h *onlyonce.Hold, st *onlyonce.Settlement)) []any {
	n := len(list)
	states, statuses, finals, fences := make([]string, n), make([]int32, n), make([]bool, n), make([]int64, n)
	refs, errs, headers, keeps := make([]*string, n), make([]*string, n), make([]*string, n), make([]*int64, n)
	bodies, ids, owners := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	for i, one := range list {
		id, h, st := of(one)
		states[i], statuses[i], finals[i], bodies[i] = string(st.State), int32(st.Result.Status), st.Final, st.Result.Body // as the column has it
		refs[i], errs[i], headers[i], keeps[i] = Optional(st.Result.Ref), Optional(st.Error), Header(&st.Result), record.Keep(st)
		ids[i], owners[i], fences[i] = id[:], []byte(h.Owner), h.Fence
	}
	return []any{states, statuses, finals, refs, errs, headers, bodies, keeps, ids, owners, fences}
}

// Optional is NULL for an empty text.
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	s = Escape(s)
	return &s
}

// Header is NULL for no header, no traceparent and no Keep.
func Header(r *onlyonce.Result) *string {
	if s, ok := record.EncodeHeader(r).(string); ok {
		return &s
	}
	return nil
}
