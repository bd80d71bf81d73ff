package servertest

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// subjectOf returns the subject of a command's record.
func subjectOf(id onlyonce.ID) string {
	hash := id.Hash()
	return "onlyonce.records." + hex.EncodeToString(hash[:1]) + "." + base64.RawURLEncoding.EncodeToString(hash[:])
}

// stream returns the stream of the store with the default name.
func stream(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	s, err := js.Stream(t.Context(), natsstore.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stored returns the message of a command's record.
func stored(t *testing.T, js jetstream.JetStream, id onlyonce.ID) *jetstream.RawStreamMsg {
	t.Helper()
	m, err := stream(t, js).GetLastMsgForSubject(t.Context(), subjectOf(id))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// change changes the settings of the stream.
func change(t *testing.T, js jetstream.JetStream, how func(*jetstream.StreamConfig)) {
	t.Helper()
	c := stream(t, js).CachedInfo().Config
	how(&c)
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestStore_AServerThatHasForgottenRunsNoNewCommand(t *testing.T) {
	server, js, s := migrated(t)
	id := hazard.Run(t, s, "before")
	was := stream(t, js).CachedInfo().Config
	for name, restore := range map[string]func() error{
		"the stream is gone": func() error { return nil },
		"the stream is empty": func() error {
			_, err := js.CreateStream(t.Context(), was)
			return err
		},
	} {
		server.forget()
		if err := restore(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var crowd sync.WaitGroup
			for i := range 64 { // they share requests
				crowd.Go(func() {
					c := hazard.Claim(cmp.Or(strings.Repeat("k", i), "before"))
					if r, err := s.Claim(t.Context(), c); !errors.Is(err, natsstore.ErrForgotten) {
						t.Errorf("%s: claim got %v and error %v", name, r, err)
					}
				})
			}
			crowd.Wait()
		}
		if _, err := s.Lookup(t.Context(), hazard.Claim("another").ID); !errors.Is(err, natsstore.ErrForgotten) || errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup: %v", name, err)
		}
		if err := s.Settle(t.Context(), onlyonce.Hold{ID: hazard.Claim("another").ID, Owner: hazard.NewOwner(), Fence: 1}, hazard.Completed); !errors.Is(err, natsstore.ErrForgotten) {
			t.Errorf("%s: settle: %v", name, err)
		}
		if _, err := natsstore.Open(t.Context(), js, natsstore.Config{AcceptRisks: unsynced}); err == nil || !strings.Contains(err.Error(), "forgotten: ") {
			t.Errorf("%s: open: %v", name, err)
		}
		migrate(t, js, natsstore.Config{})
		if _, err := s.Lookup(t.Context(), id); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup after Migrate: %v", name, err)
		}
		hazard.Run(t, open(t, js, natsstore.Config{}), "before")
	}
}

// A claim whose confirmation was lost finds its own record, which says nothing about the others.
func TestStore_AServerThatHasForgottenRunsNoCommandWhoseConfirmationWasLost(t *testing.T) {
	server, js, _ := migrated(t)
	was := stream(t, js).CachedInfo().Config
	w := hazard.NewWay(t, "127.0.0.1:"+server.port)
	s := open(t, connect(t, behind(w.Address())), natsstore.Config{Timeout: 5 * time.Minute})
	server.forget()
	if _, err := js.CreateStream(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	w.Deafen("Nats-Expected-Last-Subject-Sequence: 0\r\n")
	c := hazard.Claim("k")
	claimed := make(chan error, 1)
	go func() { _, err := s.Claim(t.Context(), c); claimed <- err }()
	for st := stream(t, js); ; time.Sleep(time.Millisecond) {
		_, err := st.GetLastMsgForSubject(t.Context(), subjectOf(c.ID))
		if err == nil {
			break
		}
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Fatal(err)
		}
	}
	w.Cut()
	w.Open()
	if err := <-claimed; !errors.Is(err, natsstore.ErrForgotten) {
		t.Errorf("the claim got error %v", err)
	}
}

func TestStore_MigratingAgainForgetsNothing(t *testing.T) {
	_, js, s := migrated(t)
	id := hazard.Run(t, s, "k")
	migrate(t, js, natsstore.Config{})
	if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}

func TestStore_WhenTheStreamIsFullClaimsFailAndNothingIsLost(t *testing.T) {
	_, js, s := migrated(t)
	limit := func(bytes int64) {
		change(t, js, func(c *jetstream.StreamConfig) { c.MaxBytes = bytes })
	}
	hazard.CheckFull(t, s,
		func() { limit(int64(stream(t, js).CachedInfo().State.Bytes)) },
		func() { limit(-1) })
}

func TestStore_KillsOfTheServerLoseNothing(t *testing.T) {
	server, _, s := migrated(t)
	settled := make(map[onlyonce.ID]bool)
	for round := range 3 {
		hazard.Load(t, s, fmt.Sprint(round), settled, server.kill)
		server.restart()
		hazard.CheckRepeats(t, s, settled)
	}
}

func TestStore_ARecordExpiresAnHourBeforeItsMessage(t *testing.T) {
	_, js, s := migrated(t)
	hazard.CheckExpiries(t, s, func(name string, id onlyonce.ID, expires time.Duration) {
		want := "never"
		if expires >= 0 {
			want = fmt.Sprintf("%.0fs", (expires + time.Hour + time.Second).Seconds())
		}
		if ttl := stored(t, js, id).Header.Get("Nats-TTL"); ttl != want {
			t.Errorf("%s: the message is deleted in %s, want %s", name, ttl, want)
		}
	})
}

func TestStore_AMessageThatTheServerHasDeletedIsNoRecord(t *testing.T) {
	js := connect(t, startNATS(t, ""))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: natsstore.DefaultStream, Subjects: []string{"onlyonce.records.>"}, MaxMsgsPerSubject: 1,
		AllowMsgTTL: true, AllowRollup: true, SubjectDeleteMarkerTTL: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	migrate(t, js, natsstore.Config{})
	s := open(t, js, natsstore.Config{AcceptRisks: []string{natsstore.RiskEviction}})
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	publish(t, js, &nats.Msg{Subject: subjectOf(r.ID), Data: stored(t, js, r.ID).Data, Header: nats.Header{"Nats-TTL": {"1s"}}})
	for stored(t, js, r.ID).Header.Get("Nats-Marker-Reason") == "" {
		time.Sleep(10 * time.Millisecond)
	}
	if r, err := s.Lookup(t.Context(), r.ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("lookup got %+v, error %v", r, err)
	}
	c := hazard.Claim("k")
	if now, err := s.Claim(t.Context(), c); err != nil || now.Owner != c.Owner || now.Fence <= r.Fence {
		t.Errorf("after the fence %d, a claim got %+v, error %v", r.Fence, now, err)
	}
}

func publish(t *testing.T, js jetstream.JetStream, m *nats.Msg) {
	t.Helper()
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestStore_ARecordThatCanNotBeReadIsOfAnUnknownOutcome(t *testing.T) {
	_, js, s := migrated(t)
	id := hazard.Run(t, s, "k")
	whole := stored(t, js, id).Data
	edited := func(at int, b byte) []byte {
		d := append([]byte{}, whole...)
		d[at] = b
		return d
	}
	for name, damaged := range map[string][]byte{
		"empty":                      {},
		"cut in the head":            whole[:40],
		"cut behind it":              whole[:70],
		"another version":            edited(0, '2'),
		"no such state":              edited(1, 'X'),
		"a part of negative length":  edited(47, 0xff),
		"a part longer than the all": edited(48, 0x7f),
	} {
		publish(t, js, &nats.Msg{Subject: subjectOf(id), Data: damaged})
		hazard.CheckListedCorrupt(t, s, name)
		hazard.CheckCorrupt(t, s, name, id)
	}
}

func TestList_EveryPageBeginsBehindARecordWithoutAHead(t *testing.T) {
	_, js, s := migrated(t)
	hazard.CheckCorruptPages(t, s, func(id onlyonce.ID) { publish(t, js, &nats.Msg{Subject: subjectOf(id)}) })
}

func TestStore_AFenceIncreasesAlthoughTheClockWasSetBack(t *testing.T) {
	_, js, s := migrated(t)
	hazard.CheckFences(t, s, func(id onlyonce.ID, fence int64) {
		m := stored(t, js, id)
		binary.BigEndian.PutUint64(m.Data[19:], uint64(fence))
		publish(t, js, &nats.Msg{Subject: m.Subject, Data: m.Data})
	})
}

func TestStore_ARecordThatIsTooLargeIsRejectedAndChangesNothing(t *testing.T) {
	_, js, s := migrated(t)
	for name, size := range map[string]int{"for the server": 8 << 20, "for the stream": 100 << 10} {
		r, err := s.Claim(t.Context(), hazard.Claim(name))
		if err != nil {
			t.Fatal(err)
		}
		large := hazard.Completed
		large.Result.Body = make([]byte, size)
		if name == "for the stream" {
			change(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 64 << 10 })
		}
		if err := s.Settle(t.Context(), hazard.Hold(r), large); !errors.Is(err, onlyonce.ErrTooLarge) {
			t.Errorf("%s: settle: %v", name, err)
		}
		if err := s.Renew(t.Context(), hazard.Hold(r), time.Minute, map[string][]byte{"a": large.Result.Body}); !errors.Is(err, onlyonce.ErrTooLarge) {
			t.Errorf("%s: renew: %v", name, err)
		}
		if now, err := s.Lookup(t.Context(), r.ID); err != nil || now.State != onlyonce.StateProcessing || now.Fence != r.Fence {
			t.Errorf("%s: the record is %+v, error %v", name, now, err)
		}
		if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
			t.Errorf("%s: settle with less: %v", name, err)
		}
		change(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
	}
}

// The server closes the connection of a client for which 64 MiB are waiting.
func TestStore_LargeResultsDoNotOverrunTheConnection(t *testing.T) {
	server := startNATS(t, "")
	js := connect(t, server)
	migrate(t, js, natsstore.Config{})
	s := open(t, js, natsstore.Config{Timeout: 5 * time.Minute})
	hazard.CheckLargeRepeats(t, s)
	if n := js.Conn().Stats().Reconnects; n > 0 {
		t.Errorf("the client has connected again %d times", n)
	}
}
