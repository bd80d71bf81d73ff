package servertest

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func TestOpen_RejectsAStreamWhoseSettingsBreakThePromise(t *testing.T) {
	js := connect(t, startNATS(t, ""))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: natsstore.DefaultStream, Subjects: []string{"onlyonce.>"}, Storage: jetstream.MemoryStorage,
		MaxBytes: 1 << 20, MaxAge: 3600e9, AllowDirect: true, AllowRollup: true,
	}); err != nil {
		t.Fatal(err)
	}
	_, err := natsstore.Migrate(t.Context(), js, natsstore.Config{})
	if err == nil || !strings.Contains(err.Error(), "per-message TTL is disabled") {
		t.Errorf("migrate: %v", err)
	}
	_, err = natsstore.Open(t.Context(), js, natsstore.Config{Replicas: 3})
	for _, want := range []string{
		"eviction: ", "max_age is 1h0m0s", "discard is old with a limit of messages or bytes", "deny_delete or deny_purge is off", "allow_rollup_hdrs is on",
		"persistence: ", "stream-settings: ", "allow_direct is on", "allow_msg_ttl is off", "max_msgs_per_subject is not 1", "its subjects are not onlyonce.records.>",
		"replicas: the stream has 1 replicas, and the store asks for 3", "forgotten: ", "sync-interval: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	// Such a stream loses the outcomes of commands that have begun.
	for _, c := range []struct {
		name, want string
		set        func(*jetstream.StreamConfig)
	}{
		{"bytes", "max_bytes or max_msgs is set", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }},
		{"messages", "max_bytes or max_msgs is set", func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 << 20 }},
		{"subject", "discard_new_per_subject is on", func(c *jetstream.StreamConfig) { c.DiscardNewPerSubject = true }},
		{"silent", "no_ack is on", func(c *jetstream.StreamConfig) { c.NoAck = true }},
	} {
		cfg := natsstore.Config{Stream: c.name, AcceptRisks: unsynced}
		migrate(t, js, cfg)
		open(t, js, cfg)
		s, err := js.Stream(t.Context(), c.name)
		if err != nil {
			t.Fatal(err)
		}
		settings := s.CachedInfo().Config
		c.set(&settings)
		if _, err := js.UpdateStream(t.Context(), settings); err != nil {
			t.Fatal(err)
		}
		if _, err := natsstore.Open(t.Context(), js, cfg); err == nil || !strings.Contains(err.Error(), "stream-settings: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("of the stream %s, the error is %v, want %q in it", c.name, err, c.want)
		}
	}
	open(t, js, natsstore.Config{Replicas: 3, AcceptRisks: []string{
		natsstore.RiskEviction, natsstore.RiskPersistence, natsstore.RiskStream, natsstore.RiskReplicas, natsstore.RiskForgotten,
	}})
	for want, cfg := range map[string]natsstore.Config{
		`there is no risk "evictions"`:      {AcceptRisks: []string{"evictions"}},
		`there is no risk "server-version"`: {AcceptRisks: []string{"server-version"}},
		"a blank, a dot":                    {Stream: "a.b"},
		"6 Replicas":                        {Replicas: 6},
		"2 Replicas":                        {Replicas: 2},
		"4 Replicas":                        {Replicas: 4},
		"may be negative":                   {ClockSkew: -1},
	} {
		if _, err := natsstore.Open(t.Context(), js, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}

func TestDiagnose_ShowsTheSyncIntervalToTheSystemAccount(t *testing.T) {
	for interval, want := range map[string]string{
		"always": "",
		"20s":    "that of single is 20s",
	} {
		server := startNATS(t, "sync_interval: "+interval)
		js := connect(t, server)
		migrate(t, js, natsstore.Config{})
		admin := connectWith(t, []*natsServer{server}, nats.UserInfo("admin", "admin")).Conn()
		s, err := natsstore.Open(t.Context(), js, natsstore.Config{System: admin, AcceptRisks: []string{natsstore.RiskSyncInterval}})
		if err != nil {
			t.Fatal(err)
		}
		findings, err := s.Diagnose(t.Context())
		if err != nil || fmt.Sprint(findings) != "[]" && want == "" || !strings.Contains(fmt.Sprint(findings), want) {
			t.Errorf("%s: the findings are %v, error %v", interval, findings, err)
		}
		if _, err := natsstore.Open(t.Context(), js, natsstore.Config{System: js.Conn()}); err == nil || !strings.Contains(err.Error(), "is not a connection to the system account") {
			t.Errorf("%s: with another connection: %v", interval, err)
		}
	}
}

// Nothing but the greeting of the server tells its version.
func TestOpen_RejectsAServerThatKeepsEveryMessageForGood(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, `INFO {"server_id":"S","version":"2.10.29","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if lines.Text() == "PING" {
				fmt.Fprint(c, "PONG\r\n")
			}
		}
	}()
	conn, err := nats.Connect("nats://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	wants := func(call string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "the server is NATS 2.10.29") || !strings.Contains(err.Error(), "2.11 is the oldest version") {
			t.Errorf("%s: %v", call, err)
		}
	}
	_, err = natsstore.Migrate(t.Context(), js, natsstore.Config{})
	wants("migrate", err)
	_, err = natsstore.Open(t.Context(), js, natsstore.Config{AcceptRisks: unsynced})
	wants("open", err)
}
