package proxy

import (
	"strconv"
	"testing"

	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
)

func TestDeliver_TheHeadersThatConnectionListsAreNotReturned(t *testing.T) {
	fields := []h1.Field{
		{Name: "Connection", Value: "x-One , X-TWO"},
		{Name: "X-One"},
		{Name: "X-Two"},
		{Name: "X-Three"},
		{Name: "X-Four"},
		{Name: "Keep-Alive"},
		{Name: "Connection", Value: "keep-alive"},
		{Name: "Connection", Value: "\tX-Four,,close"},
		{Name: "Close"},
		{Name: "X-Five"},
		{Name: "Idempotency-Replayed"},
	}
	got := ""
	hopByHop := connectionNames(fields)
	for _, f := range fields {
		if returns(f.Name, hopByHop) {
			got += f.Name + " "
		}
	}
	if got != "X-Three X-Five " {
		t.Errorf("returned: %s", got)
	}
	if connectionNames(fields[1:7]) != nil {
		t.Error("a response without names in Connection needs a map")
	}
}

// BenchmarkReturns decides about all headers of a response.
func BenchmarkReturns(b *testing.B) {
	for _, n := range []int{8, 64, 256} {
		fields := []h1.Field{{Name: "Connection", Value: "X-A, X-B"}}
		for i := len(fields); i < n; i++ {
			fields = append(fields, h1.Field{Name: "X-Field-" + strconv.Itoa(i)})
		}
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				hopByHop := connectionNames(fields)
				for _, f := range fields {
					returns(f.Name, hopByHop)
				}
			}
		})
	}
}
