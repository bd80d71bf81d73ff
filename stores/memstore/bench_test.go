package memstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

var answer = onlyonce.Settlement{
	State: onlyonce.StateCompleted,
	Result: onlyonce.Result{
		Status: 201,
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/v1/orders/ord_1"}},
		Body:   make([]byte, 1024),
	},
	Keep: time.Hour,
}

func claimOf(key string) onlyonce.Claim {
	return onlyonce.Claim{
		ID:          onlyonce.ID{Tenant: "acme", Operation: "POST /v1/orders", Key: key},
		Owner:       "0123456789abcdef",
		Fingerprint: onlyonce.Fingerprint([]byte("body")),
		Lease:       30 * time.Second,
	}
}

func BenchmarkClaimAndSettle(b *testing.B) {
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	s := memstore.New(memstore.Config{MaxBytes: 1 << 40})
	c := claimOf("")
	st := answer
	st.Keep = time.Millisecond
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.ID.Key = keys[i%len(keys)]
		r, err := s.Claim(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Settle(b.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, st); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	s := memstore.New(memstore.Config{})
	c := claimOf("k")
	r, err := s.Claim(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Settle(b.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, answer); err != nil {
		b.Fatal(err)
	}
	c.Owner = "fedcba9876543210"
	b.ReportAllocs()
	for b.Loop() {
		r, err := s.Claim(b.Context(), c)
		if err != nil || len(r.Result.Body) != 1024 {
			b.Fatal(err)
		}
	}
}
