package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// The names of findings.
const (
	RiskEviction    = "eviction"
	RiskPersistence = "persistence"
	RiskForgotten   = "forgotten"
	RiskMixed       = engine.RiskMixed // see CheckAddresses
)

// risks can be accepted. A server that is too old can't: it does not know what the scripts
// use, and no outcome could be recorded.
var risks = []string{RiskEviction, RiskPersistence, RiskForgotten, engine.RiskReplica}

func reject(findings []onlyonce.Finding, accepted []string) error {
	return engine.Reject(findings, accepted, risks)
}

// Diagnose finds settings of the servers that would break the store's guarantees, now or
// after a failover, and finds out whether the servers have lost their records. See
// Config.Client for the replicas that it examines.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	findings, err := s.diagnose(ctx)
	return findings, wrap("diagnose", err)
}

func (s *Store) diagnose(ctx context.Context) (findings []onlyonce.Finding, err error) {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return nil, err
	}
	primaries := 0
	for _, n := range nodes {
		if n.isPrimary() {
			primaries++
			findings = append(findings, n.settingsFindings()...)
		}
	}
	for _, n := range s.replicasOf(ctx, nodes) {
		findings = append(findings, n.settingsFindings()...)
	}
	if primaries == 0 {
		findings = append(findings, engine.NewFinding(engine.RiskReplica,
			"the server is a replica, which rejects writes", "connect to the primary, through Sentinel or the cluster if there is one"))
	}
	identity, without, err := identities(ctx, s.client, s.known.Load().keys)
	if err != nil {
		return nil, err
	}
	k, err := s.current(ctx, 0)
	switch {
	case errors.Is(err, ErrForgotten):
		k = s.known.Load().keys
	case err != nil:
		return nil, err
	}
	if identity != "" && identity != k.identity {
		return nil, s.other(identity)
	}
	var commands rueidis.Commands
	for p := range partitions {
		if !without[byte(p)] {
			commands = append(commands, s.client.B().Exists().Key(k.index(byte(p))).Build())
		}
	}
	missing := len(without)
	for _, result := range s.client.DoMulti(ctx, commands...) {
		there, err := result.AsBool()
		if err != nil {
			return nil, err
		}
		if !there {
			missing++
		}
	}
	if missing > 0 {
		findings = append(findings, engine.NewFinding(RiskForgotten,
			fmt.Sprintf("%d of the %d keys that Migrate creates are missing: the server is new, or it has lost its records, and commands that have run would run again", missing, partitions),
			"if it is not new, find out why; then run onlyonce migrate, or call redisstore.Migrate, once"))
	}
	return findings, nil
}

// canFlush returns an error if a server does not know how to wait for disks.
func (s *Store) canFlush(ctx context.Context) error {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		known, err := n.client.Do(ctx, n.client.B().CommandInfo().CommandName("WAITAOF").Build()).ToArray()
		if err != nil {
			return err
		}
		if len(known) != 1 || known[0].IsNil() {
			return fmt.Errorf("%s does not have WAITAOF, which Flushed needs: upgrade it to Redis 7.2 or later or to Valkey, or leave Flushed out and set appendfsync always", n.address)
		}
	}
	return nil
}

// permitted returns an error if the server does not have a command that the scripts use, or if
// the client's user may not run it, publish that a command has ended, or wait for replicas. A
// script that is stopped in the middle has written already. The commands here change nothing,
// because their key never exists.
func (s *Store) permitted(ctx context.Context) error {
	b := s.client.B
	k := s.known.Load().keys
	key := k.own(0) + "none"
	_, err := lookScript.run(ctx, s.client, []string{key, k.index(0)}, nil)
	errs := []error{err}
	commands := rueidis.Commands{
		b().Time().Build(),
		b().Get().Key(key).Build(),
		b().Set().Key(key).Value("").Xx().Build(),
		b().Xadd().Key(key).Nomkstream().Id("*").FieldValue().FieldValue("n", "").Build(),
		b().Xdel().Key(key).Id(firstEntry).Build(),
		b().XinfoStream().Key(key).Build(),
		b().Xrange().Key(key).Start("-").End("+").Build(),
		b().Zadd().Key(key).Xx().ScoreMember().ScoreMember(0, "").Build(),
		b().Zrem().Key(key).Member("").Build(),
		b().Zrangebyscore().Key(key).Min("-inf").Max("+inf").Build(),
		b().Zcard().Key(key).Build(),
		b().Getrange().Key(key).Start(0).End(0).Build(),
		b().Spublish().Channel(k.ended(0)).Message("").Build(),
	}
	switch {
	case s.flushed:
		commands = append(commands, b().Waitaof().Numlocal(0).Numreplicas(0).Timeout(1).Build())
	case s.replicas > 0:
		commands = append(commands, b().Wait().Numreplicas(0).Timeout(1).Build())
	}
	for _, command := range commands {
		errs = append(errs, s.client.Do(ctx, command).Error())
	}
	for _, err := range errs {
		if err := denied(err); err != nil {
			return err
		}
		if failed, ok := rueidis.IsRedisErr(err); ok && strings.Contains(failed.Error(), "unknown command") {
			return fmt.Errorf("the server does not have a command that the store uses: %w", failed)
		}
	}
	return nil
}

// denied returns an error if a server's error is that the user lacks a permission.
func denied(err error) error {
	if failed, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(failed.Error(), "NOPERM") {
		return fmt.Errorf("the user of the server lacks a permission that docs/stores.md lists: %w", failed)
	}
	return nil
}

// info returns the fields of a server's INFO.
func info(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	text, err := node.Do(ctx, node.B().Info().Build()).ToString()
	if err != nil {
		return nil, err
	}
	about := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			about[name] = value
		}
	}
	return about, nil
}

// settingsFindings returns the findings about the settings of a server.
func (n *node) settingsFindings() (findings []onlyonce.Finding) {
	if n.denied != nil {
		return []onlyonce.Finding{engine.NewFinding(engine.RiskReplica,
			fmt.Sprintf("the replica %s rejects the store's user (%v), so its settings are unknown, and once it is promoted, every call may fail", n.address, n.denied),
			"create the user on it with the permissions that docs/stores.md lists: Redis does not replicate users")}
	}
	name, primary := n.address, n.address
	if !n.isPrimary() {
		name = "the replica " + n.address
		primary = name + ", once it is promoted,"
	}
	if version := n.about["redis_version"]; engine.OlderThan(version, "7.0") {
		findings = append(findings, engine.NewFinding(engine.RiskOldVersion,
			fmt.Sprintf("%s is Redis %s, but the oldest supported version is 7.0", name, version), "upgrade the server"))
	}
	if policy := n.about["maxmemory_policy"]; policy != "noeviction" {
		findings = append(findings, engine.NewFinding(RiskEviction,
			fmt.Sprintf("%s deletes records when its memory is full (maxmemory-policy is %s), and their commands can run again", primary, policy),
			"set maxmemory-policy noeviction"))
	}
	if n.about["aof_enabled"] != "1" && !n.isSynchronizing() {
		findings = append(findings, engine.NewFinding(RiskPersistence,
			fmt.Sprintf("%s loses its records when it is restarted (appendonly is off), and their commands can run again", primary),
			"set appendonly yes"))
	}
	return findings
}
