package resources

import (
	"context"
	"net/http"
)

// A Request holds the resources that one request uses: a place among those of its tenant, and
// the memory of its body and its response. It is used again for other requests
// after Forget.
type Request struct {
	Body     Flow
	Response Flow

	quota   *Quota
	allowed *allowance // nil: the request is not counted
}

// Admit counts a request of the tenant and takes the first memory for its body
// of the announced length; -1: the length is unknown. It may wait for the
// memory. If it returns nil, the caller calls Release when the request ends.
func (q *Quota) Admit(ctx context.Context, r *Request, tenant string, length int64) *Rejection {
	n, class := firstGrant(length)
	granted, rejected := q.enter(r, tenant, n, class)
	if rejected == nil && !granted {
		if rejected = r.Body.Wait(ctx, n, class); rejected != nil {
			r.Release(false, 0)
		}
	}
	return rejected
}

// AdmitUncounted is Admit for a request that has no tenant: only its memory is
// counted.
func (q *Quota) AdmitUncounted(ctx context.Context, r *Request, length int64) *Rejection {
	r.begin(q, nil, nil)
	n, class := firstGrant(length)
	return r.Body.Wait(ctx, n, class)
}

// enter counts a request of the tenant, and takes n bytes for its body if they
// are free.
func (q *Quota) enter(r *Request, tenant string, n, class int64) (granted bool, rejected *Rejection) {
	u := q.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	a := q.allowance(tenant)
	if rejected = q.reached(a); rejected != nil {
		return false, rejected
	}
	a.inFlight++
	u.requests++
	r.allowed = a
	r.begin(q, &a.share.bodies, &a.share.responses)
	if granted = r.Body.isFree(n, class); granted {
		r.Body.add(n)
	}
	return granted, nil
}

func (r *Request) begin(q *Quota, body, response *part) {
	u := q.usage
	r.quota = q
	r.Body.begin(&u.mu, &q.limits, &u.bodies, body)
	r.Body.prepare((*http.ResponseController).SetReadDeadline)
	r.Response.begin(&u.mu, &q.limits, &u.responses, response)
	r.Response.prepare((*http.ResponseController).SetWriteDeadline)
}

// IsCounted reports whether the request still counts among its tenant's.
func (r *Request) IsCounted() bool { return r.allowed != nil }

// Release ends the use of all that the request uses. newKey reports whether its
// key was new, and stored is how many bytes of it were stored. A request that
// has been released stays so.
func (r *Request) Release(newKey bool, stored int) {
	if r.allowed == nil && r.Body.held == 0 && r.Response.held == 0 {
		return
	}
	u := r.quota.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	r.Body.giveBack()
	r.Response.giveBack()
	if a := r.allowed; a != nil {
		a.inFlight--
		u.requests--
		r.quota.account(a, newKey, stored)
		r.allowed = nil
	}
}

// Forget drops all data of a request that has been released.
func (r *Request) Forget() {
	r.quota = nil
	r.Body.forget()
	r.Response.forget()
}
