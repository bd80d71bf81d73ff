package redisstore_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

var completed = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 201, Body: []byte("made")}, Keep: time.Hour}

func claimOf(key string) onlyonce.Claim {
	return onlyonce.Claim{ID: onlyonce.ID{Tenant: "acme", Operation: "POST /v1/orders", Key: key}, Owner: string(random()), SkipFingerprint: true, Lease: 10 * time.Minute}
}

func holdOf(r onlyonce.Record) onlyonce.Hold {
	return onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}
}

// run claims and completes a command, and returns its ID.
func run(t *testing.T, s *redisstore.Store, key string) onlyonce.ID {
	t.Helper()
	r, err := s.Claim(t.Context(), claimOf(key))
	if err == nil {
		err = s.Settle(t.Context(), holdOf(r), completed)
	}
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return r.ID
}

func do(t *testing.T, client rueidis.Client, command ...string) {
	t.Helper()
	if err := client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error(); err != nil {
		t.Fatalf("%v: %v", command, err)
	}
}

// migrated returns a server and a store on it.
func migrated(t *testing.T, args ...string) (*redisServer, rueidis.Client, *redisstore.Store) {
	t.Helper()
	server := startRedis(t, args...)
	client := server.client(t)
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	return server, client, open(t, client, redisstore.Config{})
}

func TestStore_AServerThatHasForgottenRunsNoNewCommand(t *testing.T) {
	_, client, s := migrated(t)
	id := run(t, s, "before")
	do(t, client, "FLUSHALL")
	if r, err := s.Claim(t.Context(), claimOf("before")); !errors.Is(err, redisstore.ErrForgotten) {
		t.Errorf("claim got %v and error %v", r, err)
	}
	if _, err := s.Lookup(t.Context(), id); !errors.Is(err, redisstore.ErrForgotten) || errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("lookup: %v", err)
	}
	if err := s.Settle(t.Context(), onlyonce.Hold{ID: id, Owner: string(random()), Fence: 1}, completed); !errors.Is(err, redisstore.ErrForgotten) {
		t.Errorf("settle: %v", err)
	}
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{}); err == nil || !strings.Contains(err.Error(), "forgotten: ") {
		t.Errorf("open: %v", err)
	}
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	run(t, open(t, client, redisstore.Config{}), "after")
}

func TestStore_MigratingAgainForgetsNothing(t *testing.T) {
	_, client, s := migrated(t)
	id := run(t, s, "k")
	if made, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil || made != 0 {
		t.Fatalf("%d keys were made, error %v", made, err)
	}
	do(t, client, "DEL", "onlyonce:{00}:index", "onlyonce:{ff}:index")
	if made, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil || made != 2 {
		t.Fatalf("%d keys were made, error %v", made, err)
	}
	if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}

func TestOpen_RejectsSettingsThatBreakThePromise(t *testing.T) {
	server := startRedis(t, "--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
	client := server.client(t)
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	_, err := redisstore.Open(t.Context(), client, redisstore.Config{})
	for _, want := range []string{"eviction: ", "persistence: ", "set maxmemory-policy noeviction", "set appendonly yes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	open(t, client, redisstore.Config{AcceptRisks: []string{redisstore.RiskEviction, redisstore.RiskPersistence}})
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{AcceptRisks: []string{"evictions"}}); err == nil || !strings.Contains(err.Error(), `there is no risk "evictions"`) {
		t.Errorf("a risk that there is not: %v", err)
	}
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: "{a}"}); err == nil || !strings.Contains(err.Error(), "brace") {
		t.Errorf("a prefix with braces: %v", err)
	}
}

// Redis compiles the scripts again after it has forgotten them.
func TestStore_ScriptsThatTheServerForgotAreSentAgain(t *testing.T) {
	_, client, s := migrated(t)
	run(t, s, "before")
	do(t, client, "SCRIPT", "FLUSH", "SYNC")
	run(t, s, "after")
}

func TestStore_WhenTheMemoryIsFullClaimsFailAndNothingIsLost(t *testing.T) {
	_, client, s := migrated(t)
	id := run(t, s, "before")
	do(t, client, "CONFIG", "SET", "maxmemory", "1mb")
	if r, err := s.Claim(t.Context(), claimOf("full")); err == nil {
		t.Fatalf("claim got %+v", r)
	}
	if r, err := s.Claim(t.Context(), claimOf("before")); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the repeat got %+v and error %v", r, err)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "0")
	if _, err := s.Lookup(t.Context(), id); err != nil {
		t.Error(err)
	}
	run(t, s, "full")
}

func TestStore_KillsOfTheServerLoseNothing(t *testing.T) {
	server, _, _ := migrated(t, "--appendfsync", "always")
	settled := make(map[onlyonce.ID]bool)
	for round := range 3 {
		client := server.client(t)
		s := open(t, client, redisstore.Config{})
		for id := range settled {
			if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
				t.Fatalf("the record of %v is %+v, error %v", id, r, err)
			}
		}
		var mu sync.Mutex
		var callers sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for g := range 8 {
			callers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					r, err := s.Claim(ctx, claimOf(fmt.Sprint(round, " ", g, " ", i)))
					if err != nil {
						return
					}
					if err := s.Settle(ctx, holdOf(r), completed); err != nil {
						return
					}
					mu.Lock()
					settled[r.ID] = true
					mu.Unlock()
				}
			})
		}
		for enough := len(settled) + 100; ; {
			mu.Lock()
			n := len(settled)
			mu.Unlock()
			if n >= enough {
				break
			}
			time.Sleep(time.Millisecond)
		}
		server.Kill()
		cancel()
		callers.Wait()
		server.restart()
	}
	client := server.client(t)
	s := open(t, client, redisstore.Config{})
	for id := range settled {
		c := claimOf(id.Key)
		if r, err := s.Claim(t.Context(), c); err != nil || r.State != onlyonce.StateCompleted || r.Owner == c.Owner {
			t.Fatalf("a repeat of %v got %+v, error %v", id, r, err)
		}
	}
}

func TestStore_EntriesWithoutARecordLeaveTheIndex(t *testing.T) {
	_, client, s := migrated(t)
	entries := func() (n int64) {
		for _, part := range indexes(t, client) {
			length, err := client.Do(t.Context(), client.B().Xlen().Key(part).Build()).AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			n += length
		}
		return n
	}
	key := inOnePartition()
	for range 200 {
		run(t, s, key())
	}
	if n := entries(); n != 200 {
		t.Fatalf("the indexes have %d entries, want 200", n)
	}
	for _, key := range records(t, client) { // as if an hour had passed since they expired
		do(t, client, "DEL", key)
	}
	for made := int64(0); entries() > made; {
		if made == 5000 {
			t.Fatalf("the indexes have %d entries of %d records", entries(), made)
		}
		for range 100 {
			run(t, s, key())
			made++
		}
	}
}

// inOnePartition returns a function that makes keys whose commands are in the same partition.
func inOnePartition() func() string {
	i := 0
	return func() string {
		for {
			i++
			if id := claimOf(strconv.Itoa(i)).ID; id.Hash()[0] == 0 {
				return id.Key
			}
		}
	}
}

// The clock may be behind an entry of the index, after it was set back or a failover.
func TestStore_ACommandIsCreatedLaterThanTheLastOneOfItsPartition(t *testing.T) {
	_, client, s := migrated(t)
	ahead := time.Now().Add(time.Hour)
	key := inOnePartition()
	run(t, s, key())
	index := slices.DeleteFunc(indexes(t, client), func(index string) bool { return !strings.Contains(index, "{00}") })[0]
	do(t, client, "XADD", index, strconv.FormatInt(ahead.UnixMicro(), 10)+"-0", "n", "")
	last := ahead
	for range 3 {
		r, err := s.Claim(t.Context(), claimOf(key()))
		if err != nil || !r.CreatedAt.After(last.Truncate(time.Microsecond)) {
			t.Fatalf("a claim after %v got %+v and error %v", last, r, err)
		}
		if stored, err := s.Lookup(t.Context(), r.ID); err != nil || !stored.CreatedAt.Equal(r.CreatedAt) {
			t.Errorf("the record is %+v, error %v", stored, err)
		}
		last = r.CreatedAt
	}
	n := 0
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if err != nil || r.CreatedAt.After(last) {
			t.Errorf("%+v comes after %v, error %v", r, last, err)
		}
		last = r.CreatedAt
		n++
	}
	if n != 4 {
		t.Errorf("listed %d records, want 4", n)
	}
}

func indexes(t *testing.T, client rueidis.Client) []string {
	t.Helper()
	return slices.DeleteFunc(all(t, client), func(key string) bool { return !strings.HasSuffix(key, ":index") })
}

func records(t *testing.T, client rueidis.Client) []string {
	t.Helper()
	return slices.DeleteFunc(all(t, client), func(key string) bool {
		return strings.HasSuffix(key, ":index") || strings.HasSuffix(key, ":open") || strings.HasSuffix(key, ":swept")
	})
}

func all(t *testing.T, client rueidis.Client) []string {
	t.Helper()
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestStore_ARecordExpiresAnHourBeforeItsKey(t *testing.T) {
	_, client, s := migrated(t)
	for name, c := range map[string]struct {
		settle *onlyonce.Settlement
		keep   time.Duration
		want   time.Duration // without the hour; -1: never
	}{
		"processing, for good": {nil, 0, -1},
		"processing":           {nil, time.Minute, 11 * time.Minute},
		"completed":            {&completed, time.Minute, time.Hour},
		"for good":             {&onlyonce.Settlement{State: onlyonce.StateUnknown}, time.Minute, -1},
		"released":             {&onlyonce.Settlement{}, time.Minute, 0},
	} {
		do(t, client, "FLUSHALL")
		if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
			t.Fatal(err)
		}
		claim := claimOf("k")
		claim.Keep = c.keep
		r, err := s.Claim(t.Context(), claim)
		if err == nil && c.settle != nil {
			err = s.Settle(t.Context(), holdOf(r), *c.settle)
		}
		if err != nil {
			t.Fatal(err)
		}
		ms, err := client.Do(t.Context(), client.B().Pttl().Key(records(t, client)[0]).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		left := time.Duration(ms) * time.Millisecond
		if c.want < 0 && ms != -1 || c.want >= 0 && (left > c.want+time.Hour+time.Second || left < c.want+30*time.Minute) {
			t.Errorf("%s: the key is deleted in %v", name, left)
		}
	}
}

// The states and the order of a value's parts are what tells stores of different versions apart.
func TestStore_ARecordThatCanNotBeReadIsOfAnUnknownOutcome(t *testing.T) {
	_, client, s := migrated(t)
	id := run(t, s, "k")
	key := records(t, client)[0]
	value, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string]string{
		"empty":           "",
		"cut in the head": value[:40],
		"cut behind it":   value[:90],
		"another version": "2" + value[1:],
		"no such state":   value[:1] + "X" + value[2:],
	} {
		do(t, client, "SET", key, damaged)
		c := claimOf("k")
		r, err := s.Claim(t.Context(), c)
		if err != nil || r.Owner == c.Owner || r.State != onlyonce.StateUnknown || !r.Corrupt || r.ID != id {
			t.Errorf("%s: a claim got %+v, error %v", name, r, err)
		}
		if err := s.Resolve(t.Context(), r, onlyonce.Settlement{}); err != nil {
			t.Errorf("%s: resolve: %v", name, err)
		}
		c = claimOf("k")
		if now, err := s.Claim(t.Context(), c); err != nil || now.Owner != c.Owner || now.Fence <= r.Fence {
			t.Errorf("%s: after that, a claim got %+v, error %v", name, now, err)
		}
	}
}

func TestStore_AFenceIncreasesAlthoughTheClockWasSetBack(t *testing.T) {
	_, client, s := migrated(t)
	for name, settle := range map[string]onlyonce.Settlement{
		"released":    {},
		"expired":     {State: onlyonce.StateCompleted, Keep: time.Millisecond},
		"failed":      {State: onlyonce.StateFailed},
		"of a person": {State: onlyonce.StateUnknown},
	} {
		c := claimOf(name)
		r, err := s.Claim(t.Context(), c)
		if err == nil {
			err = s.Settle(t.Context(), holdOf(r), settle)
		}
		if err != nil {
			t.Fatal(err)
		}
		hash := c.ID.Hash()
		key := slices.DeleteFunc(records(t, client), func(key string) bool {
			return !strings.HasSuffix(key, base64.RawURLEncoding.EncodeToString(hash[:]))
		})[0]
		// What a clock that is an hour ahead would have given.
		ahead := r.Fence + time.Hour.Microseconds()
		do(t, client, "SETRANGE", key, "19", string(binary.BigEndian.AppendUint64(nil, uint64(ahead))))
		next := claimOf(name)
		next.RetryFailed, next.TakeUnknown = true, true
		for { // until it has expired
			now, err := s.Claim(t.Context(), next)
			if err != nil {
				t.Fatal(err)
			}
			if now.Owner == next.Owner {
				if now.Fence <= ahead {
					t.Errorf("%s: after the fence %d came %d", name, ahead, now.Fence)
				}
				break
			}
		}
	}
}

func TestList_LargeRecordsAreReadAFewAtATime(t *testing.T) {
	_, client, s := migrated(t)
	const large, small = 3 << 20, 20
	for i := range small {
		run(t, s, fmt.Sprint("small ", i))
	}
	for i := range 12 {
		r, err := s.Claim(t.Context(), claimOf(fmt.Sprint("large ", i)))
		if err == nil {
			err = s.Settle(t.Context(), holdOf(r), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: make([]byte, large)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sent := func() (n int64) {
		text, err := client.Do(t.Context(), client.B().Info().Section("stats").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(text, "total_net_output_bytes:")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	listed := 0
	before := sent()
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if listed++; listed == 1 && sent()-before > 4*large {
			t.Errorf("%d bytes were read before the first record, of %d bytes, was listed", sent()-before, len(r.Result.Body))
		}
	}
	if listed != small+12 {
		t.Errorf("listed %d records, want %d", listed, small+12)
	}
}

func TestStore_WhileTheMemoryIsFullCommandsThatHaveBegunAreSettled(t *testing.T) {
	_, client, s := migrated(t)
	begun, err := s.Claim(t.Context(), claimOf("begun"))
	if err != nil {
		t.Fatal(err)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "1mb")
	if err := s.Renew(t.Context(), holdOf(begun), 10*time.Minute, map[string][]byte{"charge": []byte("1")}); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := s.Settle(t.Context(), holdOf(begun), completed); err != nil {
		t.Errorf("settle: %v", err)
	}
	if r, err := s.Claim(t.Context(), claimOf("begun")); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the repeat got %+v and error %v", r, err)
	}
	if r, err := s.Claim(t.Context(), claimOf("new")); err == nil {
		t.Errorf("a new command got %+v", r)
	}
}

func TestOpen_RejectsAUserWhoLacksAPermission(t *testing.T) {
	server, client, _ := migrated(t)
	const documented = "on >secret ~onlyonce:* &onlyonce:* +@read +@write +@pubsub +@connection +@scripting -@dangerous +info +wait +time +role +cluster|slots +cluster|shards"
	as := func(change string) error {
		t.Helper()
		do(t, client, append([]string{"ACL", "SETUSER", "app", "reset"}, strings.Fields(documented+" "+change)...)...)
		app := server.clientWith(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "secret" })
		s, err := redisstore.Open(t.Context(), app, redisstore.Config{})
		if err == nil {
			run(t, s, "k"+change)
			err = s.Close()
		}
		return err
	}
	if err := as(""); err != nil {
		t.Errorf("the documented user: %v", err)
	}
	for change, want := range map[string]string{
		"resetchannels": "channel", "-spublish": "spublish", "-time": "time", "-get": "get", "-set": "set",
		"-xadd": "xadd", "-xdel": "xdel", "-xinfo": "xinfo", "-xrange": "xrange", "-evalsha": "evalsha",
		"-zadd": "zadd", "-zrem": "zrem", "-zrangebyscore": "zrangebyscore", "-zcard": "zcard", "-getrange": "getrange",
	} {
		if err := as(change); err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want NOPERM with %q in it", change, err, want)
		}
	}
}
