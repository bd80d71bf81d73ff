package record

import (
	"math"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestRow_AResultIsKeptWhileTheClockIsBehindItsSettlement(t *testing.T) {
	for _, keep := range []time.Duration{time.Hour, math.MaxInt64} {
		header, _ := EncodeHeader(&onlyonce.Result{Keep: keep}).(string)
		settled := time.Now()
		row := Row{
			State: string(onlyonce.StateCompleted), Attempt: 1, Fence: 1, Header: header, Body: []byte("made"),
			SettledAt: settled.UnixMicro(), Now: settled.Add(-time.Second).UnixMicro(),
		}
		if r := row.Record(); r.State != onlyonce.StateCompleted || string(r.Result.Body) != "made" || r.Result.Keep != keep.Truncate(time.Microsecond) {
			t.Errorf("of a result that is kept for %v, the record is %s, with %q for %v", keep, r.State, r.Result.Body, r.Result.Keep)
		}
	}
}
