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
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

func do(t *testing.T, client rueidis.Client, command ...string) {
	t.Helper()
	if err := client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error(); err != nil {
		t.Fatalf("%v: %v", command, err)
	}
}

func get(t *testing.T, client rueidis.Client, key string) string {
	t.Helper()
	value, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	return value
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
	id := hazard.Run(t, s, "before")
	do(t, client, "FLUSHALL")
	if r, err := s.Claim(t.Context(), hazard.Claim("before")); !errors.Is(err, redisstore.ErrForgotten) {
		t.Errorf("claim got %v and error %v", r, err)
	}
	if _, err := s.Lookup(t.Context(), id); !errors.Is(err, redisstore.ErrForgotten) || errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("lookup: %v", err)
	}
	if err := s.Settle(t.Context(), onlyonce.Hold{ID: id, Owner: hazard.NewOwner(), Fence: 1}, hazard.Completed); !errors.Is(err, redisstore.ErrForgotten) {
		t.Errorf("settle: %v", err)
	}
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{}); err == nil || !strings.Contains(err.Error(), "forgotten: ") {
		t.Errorf("open: %v", err)
	}
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	hazard.Run(t, open(t, client, redisstore.Config{}), "after")
}

func TestStore_MigratingAgainForgetsNothing(t *testing.T) {
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	if made, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil || made != 0 {
		t.Fatalf("%d keys were made, error %v", made, err)
	}
	for _, index := range indexes(t, client) {
		if strings.Contains(index, "{00}") || strings.Contains(index, "{ff}") {
			do(t, client, "DEL", index)
		}
	}
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
	for _, name := range []string{"evictions", "server-version"} {
		if _, err := redisstore.Open(t.Context(), client, redisstore.Config{AcceptRisks: []string{name}}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("there is no risk %q", name)) {
			t.Errorf("a risk that nobody can accept: %v", err)
		}
	}
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: "{a}"}); err == nil || !strings.Contains(err.Error(), "brace") {
		t.Errorf("a prefix with braces: %v", err)
	}
}

// Redis compiles the scripts again after it has forgotten them.
func TestStore_ScriptsThatTheServerForgotAreSentAgain(t *testing.T) {
	_, client, s := migrated(t)
	hazard.Run(t, s, "before")
	do(t, client, "SCRIPT", "FLUSH", "SYNC")
	hazard.Run(t, s, "after")
}

func TestStore_WhenTheMemoryIsFullClaimsFailAndNothingIsLost(t *testing.T) {
	_, client, s := migrated(t)
	hazard.CheckFull(t, s,
		func() { do(t, client, "CONFIG", "SET", "maxmemory", "1mb") },
		func() { do(t, client, "CONFIG", "SET", "maxmemory", "0") })
}

func TestStore_KillsOfTheServerLoseNothing(t *testing.T) {
	server, _, _ := migrated(t, "--appendfsync", "always")
	settled := make(map[onlyonce.ID]bool)
	for round := range 3 {
		hazard.Load(t, open(t, server.client(t), redisstore.Config{}), fmt.Sprint(round), settled, server.Kill)
		server.restart()
		hazard.CheckRepeats(t, open(t, server.client(t), redisstore.Config{}), settled)
	}
}

// inOnePartition returns a function that makes keys whose commands are in the same partition.
func inOnePartition() func() string {
	i := 0
	return func() string {
		for {
			i++
			if id := hazard.Claim(strconv.Itoa(i)).ID; id.Hash()[0] == 0 {
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
	hazard.Run(t, s, key())
	index := slices.DeleteFunc(indexes(t, client), func(index string) bool { return !strings.Contains(index, "{00}") })[0]
	do(t, client, "XADD", index, strconv.FormatInt(ahead.UnixMicro(), 10)+"-0", "n", "")
	last := ahead
	for range 3 {
		r, err := s.Claim(t.Context(), hazard.Claim(key()))
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
	return keys(t, client, "*:index")
}

func records(t *testing.T, client rueidis.Client) []string {
	t.Helper()
	return slices.DeleteFunc(keys(t, client, "*"), func(key string) bool {
		return slices.ContainsFunc([]string{":identity", ":index", ":open", ":counted", ":swept"}, func(end string) bool { return strings.HasSuffix(key, end) })
	})
}

func keys(t *testing.T, client rueidis.Client, pattern string) []string {
	t.Helper()
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern(pattern).Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestStore_ARecordExpiresAnHourBeforeItsKey(t *testing.T) {
	_, client, s := migrated(t)
	hazard.CheckExpiries(t, s, func(name string, id onlyonce.ID, expires time.Duration) {
		ms, err := client.Do(t.Context(), client.B().Pttl().Key(keyOf(t, client, id)).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		left := time.Duration(ms) * time.Millisecond
		if expires < 0 && ms != -1 || expires >= 0 && (left > expires+time.Hour+time.Second || left < expires+30*time.Minute) {
			t.Errorf("%s: the key is deleted in %v", name, left)
		}
	})
}

// keyOf returns the key of a command's record.
func keyOf(t *testing.T, client rueidis.Client, id onlyonce.ID) string {
	t.Helper()
	hash := id.Hash()
	return slices.DeleteFunc(records(t, client), func(key string) bool {
		return !strings.HasSuffix(key, base64.RawURLEncoding.EncodeToString(hash[:]))
	})[0]
}

// Stores of different versions differ in the states and in the order of a value's parts.
func TestStore_ARecordThatCanNotBeReadIsListedAndOfAnUnknownOutcome(t *testing.T) {
	for name, damage := range map[string]func(value string) string{
		"empty":           func(string) string { return "" },
		"cut in the head": func(value string) string { return value[:40] },
		"cut behind it":   func(value string) string { return value[:90] },
		"another version": func(value string) string { return "2" + value[1:] },
		"no such state":   func(value string) string { return value[:1] + "X" + value[2:] },
	} {
		t.Run(name, func(t *testing.T) {
			_, client, s := migrated(t)
			id := hazard.Run(t, s, "k")
			key := records(t, client)[0]
			do(t, client, "SET", key, damage(get(t, client, key)))
			hazard.CheckListedCorrupt(t, s, name)
			named := 0
			for r, err := range s.List(t.Context(), onlyonce.Filter{Tenant: id.Tenant, Operation: id.Operation, Key: id.Key}) {
				if named++; err != nil || !r.Corrupt || r.ID != id {
					t.Errorf("listed by its ID as %+v, error %v", r, err)
				}
			}
			if named != 1 {
				t.Errorf("listed %d records with the ID, want 1", named)
			}
			hazard.CheckCorrupt(t, s, name, id)
		})
	}
}

// A command that started over may have left an older entry in the index.
func TestList_ARecordWithoutAHeadIsListedOnceAtTheNewestEntryOfItsIndex(t *testing.T) {
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	key := keyOf(t, client, id)
	name := key[strings.LastIndexByte(key, ':')+1:]
	newest := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	index := key[:len(key)-len(name)] + "index"
	do(t, client, "XADD", index, strconv.FormatInt(newest.UnixMicro(), 10)+"-0", "n", name)
	do(t, client, "SET", key, "")
	n := 0
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if n++; err != nil || !r.Corrupt || !r.CreatedAt.Equal(newest) {
			t.Errorf("listed %+v, error %v, want one that was created at %v", r, err, newest)
		}
	}
	if n != 1 {
		t.Errorf("listed %d records, want 1", n)
	}
}

func TestList_EveryPageBeginsBehindARecordWithoutAHead(t *testing.T) {
	_, client, s := migrated(t)
	hazard.CheckCorruptPages(t, s, func(id onlyonce.ID) { do(t, client, "SET", keyOf(t, client, id), "") })
}

func TestStore_ARecordWhoseLeaseIsAliveIsHeldAlthoughItsRestCanNotBeRead(t *testing.T) {
	_, client, s := migrated(t)
	begun, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	key := keyOf(t, client, begun.ID)
	do(t, client, "SET", key, get(t, client, key)[:90])
	if r, err := s.Claim(t.Context(), hazard.Claim("k")); err != nil || r.State != onlyonce.StateProcessing || r.Owner != begun.Owner || r.ID != begun.ID {
		t.Errorf("a repeat got %+v, error %v", r, err)
	}
}

func TestStore_AFenceIncreasesAlthoughTheClockWasSetBack(t *testing.T) {
	_, client, s := migrated(t)
	hazard.CheckFences(t, s, func(id onlyonce.ID, fence int64) {
		do(t, client, "SETRANGE", keyOf(t, client, id), "19", string(binary.BigEndian.AppendUint64(nil, uint64(fence))))
	})
}

func TestList_LargeRecordsAreReadAFewAtATime(t *testing.T) {
	_, client, s := migrated(t)
	hazard.CheckLargeList(t, s, func() (n int64) {
		text, err := client.Do(t.Context(), client.B().Info().Section("stats").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(text, "total_net_output_bytes:")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		return n
	})
}

func TestStore_WhileTheMemoryIsFullCommandsThatHaveBegunAreSettled(t *testing.T) {
	_, client, s := migrated(t)
	begun, err := s.Claim(t.Context(), hazard.Claim("begun"))
	if err != nil {
		t.Fatal(err)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "1mb")
	if err := s.Renew(t.Context(), hazard.Hold(begun), 10*time.Minute, map[string][]byte{"charge": []byte("1")}); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := s.Settle(t.Context(), hazard.Hold(begun), hazard.Completed); err != nil {
		t.Errorf("settle: %v", err)
	}
	if r, err := s.Claim(t.Context(), hazard.Claim("begun")); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the repeat got %+v and error %v", r, err)
	}
	if r, err := s.Claim(t.Context(), hazard.Claim("new")); err == nil {
		t.Errorf("a new command got %+v", r)
	}
}

// The server closes the connection of a client that sends it a longer argument, without executing anything.
func TestStore_AResultThatIsLongerThanTheServerTakesIsNotSentAndDoesNotRunAgain(t *testing.T) {
	_, _, store := migrated(t, "--proto-max-bulk-len", "1mb")
	g := onlyonce.New(store, onlyonce.Config{Lease: time.Second, Observer: onlyonce.DiscardEvents})
	long, runs := strings.Repeat("x", 1<<20), 0
	pay := func() (onlyonce.Answer[string], error) {
		return onlyonce.Do(t.Context(), g, onlyonce.Request{ID: onlyonce.ID{Key: "k"}, SkipFingerprint: true}, func(context.Context) (string, error) {
			runs++
			return long, nil
		})
	}
	if a, err := pay(); err != nil || a.Value != long {
		t.Errorf("the first caller got %d bytes and error %v", len(a.Value), err)
	}
	if _, err := pay(); !errors.Is(err, onlyonce.ErrCorrupt) || runs != 1 {
		t.Errorf("the repeat got error %v after %d runs", err, runs)
	}
}

// documented are the permissions that docs/stores.md lists.
const documented = "on >secret ~onlyonce:* &onlyonce:* +@read +@write +@pubsub +@connection +@scripting -@dangerous +info +wait +time +role +cluster|nodes +cluster|slots +cluster|shards"

func TestOpen_RejectsAUserWhoLacksAPermission(t *testing.T) {
	server, client, _ := migrated(t)
	as := func(change string, cfg redisstore.Config) error {
		t.Helper()
		do(t, client, append([]string{"ACL", "SETUSER", "app", "reset"}, strings.Fields(documented+" "+change)...)...)
		app := server.clientWith(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "secret" })
		s, err := redisstore.Open(t.Context(), app, cfg)
		if err == nil {
			hazard.Run(t, s, "k"+change)
			err = s.Close()
		}
		return err
	}
	for _, change := range []string{"", "-wait"} { // nobody waits for replicas
		if err := as(change, redisstore.Config{}); err != nil {
			t.Errorf("the documented user %s: %v", change, err)
		}
	}
	for change, want := range map[string]string{
		"resetchannels": "channel", "-spublish": "spublish", "-time": "time", "-get": "get", "-set": "set",
		"-xadd": "xadd", "-xdel": "xdel", "-xinfo": "xinfo", "-xrange": "xrange", "-evalsha": "evalsha",
		"-zadd": "zadd", "-zrem": "zrem", "-zrangebyscore": "zrangebyscore", "-zcard": "zcard", "-getrange": "getrange",
	} {
		if err := as(change, redisstore.Config{}); err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want NOPERM with %q in it", change, err, want)
		}
	}
	if err := as("-wait", redisstore.Config{Replicas: 1}); err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "wait") {
		t.Errorf("-wait: the error is %v, want NOPERM", err)
	}
}

// A script that meets a command that is not there has written already.
func TestOpen_RejectsAServerWithoutACommandThatTheScriptsUse(t *testing.T) {
	client := startRedis(t, "--rename-command", "SPUBLISH", "").client(t)
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{}); err == nil || !strings.Contains(err.Error(), "unknown command 'SPUBLISH'") {
		t.Errorf("the error is %v", err)
	}
}

func TestOpen_AServerThatShowsNoLimitCountsAsOneWithTheDefault(t *testing.T) {
	// CONFIG GET is an HGET of a key that does not exist, so the reply is nil, as that of some managed services is.
	migrated(t, "--rename-command", "CONFIG", "XCONFIG", "--rename-command", "HGET", "CONFIG")
}
