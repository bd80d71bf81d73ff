package servertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func TestList_LargeRecordsAreReadAFewAtATime(t *testing.T) {
	_, js, s := migrated(t)
	hazard.CheckLargeList(t, s, func() int64 { return int64(js.Conn().Stats().InBytes) })
}

// A scan keeps the headers of 16,384 records.
func TestList_HasEveryRecordOfAStreamThatIsScannedTwice(t *testing.T) {
	_, js, s := migrated(t)
	data := stored(t, js, hazard.Run(t, s, "k")).Data
	const more = 17_000
	for i := range more {
		// Every other message is of an older command than the one before.
		created := fmt.Sprint(1_700_000_000_000_000 + int64(i%2)*more + int64(i))
		m := &nats.Msg{Subject: subjectOf(hazard.Claim(fmt.Sprint(i)).ID), Data: data, Header: nats.Header{"Onlyonce-Created": {created}}}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(5*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	hazard.CheckListOrder(t, s, more+1)
}

// It does if the record changes during the scan. A stream that keeps more than the last
// message shows the same at any time.
func TestList_ARecordThatTheScanMeetsTwiceIsListedOnce(t *testing.T) {
	js := connect(t, startNATS(t, ""))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: natsstore.DefaultStream, Subjects: []string{"onlyonce.records.>"}, Discard: jetstream.DiscardNew,
		MaxMsgsPerSubject: 10, AllowMsgTTL: true, DenyDelete: true, DenyPurge: true,
	}); err != nil {
		t.Fatal(err)
	}
	migrate(t, js, natsstore.Config{})
	s := open(t, js, natsstore.Config{AcceptRisks: []string{natsstore.RiskStream}})
	hazard.Run(t, s, "k")
	listed := 0
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if listed++; err != nil || r.State != onlyonce.StateCompleted {
			t.Errorf("listed %+v, error %v", r, err)
		}
	}
	if listed != 1 {
		t.Errorf("the record is listed %d times", listed)
	}
}
