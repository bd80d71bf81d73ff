package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// The names of findings.
const (
	RiskEviction     = "eviction"
	RiskForgotten    = "forgotten"
	RiskMixed        = engine.RiskMixed
	RiskPersistence  = "persistence"
	RiskReplicas     = "replicas"
	RiskSecondStream = "second-stream"
	RiskStream       = "stream-settings"
	RiskSyncInterval = "sync-interval"
)

// risks can be accepted. A server that is too old can't: it would keep every record for
// good.
var risks = []string{RiskEviction, RiskForgotten, RiskPersistence, RiskReplicas, RiskSecondStream, RiskStream, RiskSyncInterval}

// Diagnose finds settings of the servers and of the stream that would break the promise,
// and whether the server has forgotten its records.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	findings, err := s.diagnose(ctx, nil)
	return findings, wrap("diagnose", err)
}

// diagnose is Diagnose for a caller that accepts risks. It does not look for a second stream if
// that risk is accepted, because it would have to wait for it.
func (s *Store) diagnose(ctx context.Context, accepted []string) (findings []onlyonce.Finding, err error) {
	old, err := s.stream.version(ctx)
	switch {
	case err != nil:
		return nil, err
	case old != nil:
		return []onlyonce.Finding{*old}, nil
	}
	if f, err := s.stream.mixed(ctx, false); f != nil || err != nil {
		if f != nil {
			findings = append(findings, *f)
		}
		return findings, err
	}
	var info *streamInfo
	forgotten := false
	err = s.repeat(ctx, func(ctx context.Context) (err error) {
		if info, err = s.stream.info(ctx); err == nil {
			err = s.stream.made(ctx)
		}
		if forgotten = errors.Is(err, ErrForgotten); forgotten {
			err = nil
		}
		return s.stream.denied(ctx, err)
	})
	if err != nil {
		return nil, err
	}
	if forgotten {
		findings = append(findings, engine.NewFinding(RiskForgotten,
			fmt.Sprintf("the stream %s, or the message that Migrate makes in it, is missing: the server is new, or it has forgotten its records, and commands that ran would run again", s.stream.name),
			"if it is not new, find out why; then run onlyonce migrate, or call natsstore.Migrate, once"))
	}
	if len(info.Config) == 0 {
		return findings, nil
	}
	var c jetstream.StreamConfig
	if err := json.Unmarshal(info.Config, &c); err != nil {
		return nil, err
	}
	findings = append(findings, s.configFindings(&c)...)
	looks := []func() (*onlyonce.Finding, error){func() (*onlyonce.Finding, error) { return s.synced(ctx, info, c.Replicas) }}
	if !slices.Contains(accepted, RiskSecondStream) {
		looks = append(looks, func() (*onlyonce.Finding, error) { return s.findSecondStream(ctx, info.Domain) })
	}
	for _, look := range looks {
		f, err := look()
		if err != nil {
			return findings, err
		}
		if f != nil {
			findings = append(findings, *f)
		}
	}
	return findings, nil
}

// findSecondStream returns a finding if a second stream confirms what the store's stream is sent, and
// nothing tells their confirmations apart.
func (s *Store) findSecondStream(ctx context.Context, domain string) (*onlyonce.Finding, error) {
	never := nats.Header{headerExpected: {strconv.FormatUint(math.MaxInt64, 10)}}
	n, err := s.stream.responses(ctx, s.stream.subjects.made(), never, func(c *confirmation) bool { return c.Error != nil })
	if n > 1 && err == nil { // only a message that is stored shows the domains
		n, err = s.stream.responses(ctx, s.stream.subjects.tick(), make(nats.Header), func(c *confirmation) bool { return c.Seq > 0 && c.Domain == domain })
	}
	if n < 2 || err != nil {
		return nil, err
	}
	f := engine.NewFinding(RiskSecondStream,
		fmt.Sprintf("another stream %s, on the other side of a leafnode, takes the same messages and confirms them, also those that this one has not stored; commands whose records are missing run again", s.stream.name),
		"give one of the two stores another stream name, or set a JetStream domain on each side")
	return &f, nil
}

// listening is how long a second response may take at least.
const listening = 250 * time.Millisecond

// responses sends a message, and returns how many of the responses count. It waits for a second
// one as long again as the first took.
func (s *stream) responses(ctx context.Context, subject string, header nats.Header, counts func(*confirmation) bool) (int, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := within(limited, s.places, func() (n int, err error) {
		inbox := s.conn.NewInbox()
		sub, err := s.conn.SubscribeSync(inbox)
		if err != nil {
			return 0, err
		}
		defer func() { _ = sub.Unsubscribe() }()
		began, wait := time.Now(), patience
		if err := s.conn.PublishMsg(&nats.Msg{Subject: subject, Reply: inbox, Header: s.header(header, record.FenceKeep)}); err != nil {
			return 0, err
		}
		for {
			reply, err := sub.NextMsg(wait)
			if err != nil {
				return n, nil // nothing more comes
			}
			var c confirmation
			if json.Unmarshal(reply.Data, &c) == nil && counts(&c) {
				n++
			}
			wait = max(listening, time.Since(began))
		}
	})
	if ctx.Err() == nil {
		err = nil // the calls that follow find out why there is no response
	}
	return n, err
}

// permitted returns an error if the connection's user may not store records. The message that
// it sends is never stored, because no message has the sequence that it expects.
func (s *Store) permitted(ctx context.Context) error {
	return s.repeat(ctx, func(ctx context.Context) error {
		_, err := s.stream.put(ctx, s.stream.subjects.made(), math.MaxInt64, make(nats.Header), nil, 0)
		var away unreachable
		if !errors.As(err, &away) || errors.Is(err, nats.ErrNoResponders) {
			return ctx.Err() // the server has responded, however that was
		}
		return s.stream.denied(ctx, err)
	})
}

// version returns a finding if the server is too old.
func (s *stream) version(ctx context.Context) (*onlyonce.Finding, error) {
	version, err := within(ctx, s.places, func() (string, error) { return s.conn.ConnectedServerVersion(), nil })
	if err != nil || version == "" || !engine.OlderThan(version, oldest) {
		return nil, err
	}
	f := engine.NewFinding(engine.RiskOldVersion,
		fmt.Sprintf("the server is NATS %s, which keeps every message for good, and %s is the oldest version that is supported", version, oldest), "upgrade the server")
	return &f, nil
}

// configFindings returns the findings about the settings of the stream.
func (s *Store) configFindings(c *jetstream.StreamConfig) (findings []onlyonce.Finding) {
	if c.Storage != jetstream.FileStorage || c.PersistMode == jetstream.AsyncPersistMode {
		findings = append(findings, engine.NewFinding(RiskPersistence,
			"the stream keeps records in memory, or acknowledges them before they are written, and forgets them when its servers are restarted; their commands run again",
			"make the stream anew with the storage file and without the persist mode async"))
	}
	var drops []string
	for what, is := range map[string]bool{
		"max_age is " + c.MaxAge.String():                  c.MaxAge > 0,
		"discard is old with a limit of messages or bytes": c.Discard == jetstream.DiscardOld && (c.MaxMsgs > 0 || c.MaxBytes > 0),
		"the retention is " + c.Retention.String():         c.Retention != jetstream.LimitsPolicy,
		"deny_delete or deny_purge is off":                 !c.DenyDelete || !c.DenyPurge,
		"allow_rollup_hdrs is on":                          c.AllowRollup,
	} {
		if is {
			drops = append(drops, what)
		}
	}
	if len(drops) > 0 {
		slices.Sort(drops)
		findings = append(findings, engine.NewFinding(RiskEviction,
			fmt.Sprintf("the stream may delete records (%s), and their commands run again", strings.Join(drops, "; ")),
			"set the retention limits, discard new, max_age 0, deny_delete and deny_purge, and no allow_rollup_hdrs"))
	}
	var wrong []string
	for what, is := range map[string]bool{
		"allow_direct is on, which lets replicas answer that lag behind":                                c.AllowDirect,
		"allow_msg_ttl is off, which keeps every record for good":                                       !c.AllowMsgTTL,
		"max_msgs_per_subject is not 1":                                                                 c.MaxMsgsPerSubject != 1,
		"its subjects are not " + s.stream.subjects.all():                                               !slices.Equal(c.Subjects, []string{s.stream.subjects.all()}),
		"it is a mirror, has sources or changes subjects":                                               c.Mirror != nil || len(c.Sources) > 0 || c.SubjectTransform != nil,
		"max_bytes or max_msgs is set, and a full stream takes no outcomes of commands that have begun": c.MaxBytes > 0 || c.MaxMsgs > 0,
		"discard_new_per_subject is on, and a record takes no changes, so outcomes are lost":            c.DiscardNewPerSubject,
		"no_ack is on, so nothing shows whether a message was stored":                                   c.NoAck,
		"it is sealed": c.Sealed,
	} {
		if is {
			wrong = append(wrong, what)
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		findings = append(findings, engine.NewFinding(RiskStream,
			fmt.Sprintf("the stream %s has settings that Migrate does not give it: %s", s.stream.name, strings.Join(wrong, "; ")),
			"change them, or delete the stream if it has no records that matter, and run onlyonce migrate, or call natsstore.Migrate"))
	}
	if c.Replicas < s.replicas {
		findings = append(findings, engine.NewFinding(RiskReplicas,
			fmt.Sprintf("the stream has %d replicas, and the store asks for %d: a lost server takes records with it, and their commands run again", c.Replicas, s.replicas),
			fmt.Sprintf("set num_replicas to %d", s.replicas)))
	}
	return findings
}

// synced returns a finding unless every server of the stream writes each message to the
// disk before it acknowledges it.
func (s *Store) synced(ctx context.Context, info *streamInfo, replicas int) (*onlyonce.Finding, error) {
	loss := fmt.Sprintf("a power failure forgets what was acknowledged since the last one, and the commands run again; the stream has %d of at most 5 replicas", replicas)
	if s.system == nil {
		f := engine.NewFinding(RiskSyncInterval,
			"the servers do not show their sync_interval to this account: unless it is always, "+loss,
			"set sync_interval: always in the jetstream section of every server and give the store a connection to the system account (Config.System), or accept the risk")
		return &f, nil
	}
	waitFor := []string{info.Cluster.Leader}
	for _, r := range info.Cluster.Replicas {
		waitFor = append(waitFor, r.Name)
	}
	shown, err := intervals(ctx, s.system, waitFor)
	if err != nil {
		return nil, err
	}
	var late []string
	for _, name := range waitFor {
		if interval, ok := shown[name]; !ok {
			late = append(late, name+" does not respond")
		} else if interval != 0 {
			late = append(late, fmt.Sprintf("that of %s is %v", name, interval))
		}
	}
	if len(late) == 0 {
		return nil, nil
	}
	f := engine.NewFinding(RiskSyncInterval, fmt.Sprintf("the sync_interval of a server is not always (%s): %s", strings.Join(late, ", "), loss),
		"set sync_interval: always in the jetstream section of every server")
	return &f, nil
}

// intervals returns the sync_interval of servers by their names; 0: always. It waits for
// those that are named.
func intervals(ctx context.Context, system *nats.Conn, names []string) (map[string]time.Duration, error) {
	inbox := system.NewRespInbox()
	sub, err := system.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := system.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, nil); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	shown := make(map[string]time.Duration)
	missing := func(name string) bool { _, ok := shown[name]; return !ok }
	for slices.ContainsFunc(names, missing) {
		m, err := sub.NextMsgWithContext(limited)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case limited.Err() != nil:
			return shown, nil
		case errors.Is(err, nats.ErrNoResponders):
			return nil, errors.New("Config.System is not a connection to the system account, so the settings of the servers cannot be read")
		case err != nil:
			return nil, err
		}
		var r struct {
			Server struct {
				Name string `json:"name"`
			} `json:"server"`
			Data struct {
				Config struct {
					Interval time.Duration `json:"sync_interval"`
					Always   bool          `json:"sync_always"`
				} `json:"config"`
			} `json:"data"`
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			return nil, err
		}
		interval := r.Data.Config.Interval
		if r.Data.Config.Always {
			interval = 0
		}
		shown[r.Server.Name] = interval
	}
	return shown, nil
}
