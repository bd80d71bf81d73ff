package integration

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// A competent hand-written implementation: a hash for each command, and two scripts.
var (
	naiveRedisClaim = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.call('HGETALL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'state', 'processing', 'owner', ARGV[1], 'fingerprint', ARGV[2], 'created', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 'granted'`)
	naiveRedisSettle = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'state', 'completed', 'status', ARGV[2], 'header', ARGV[3], 'body', ARGV[4], 'settled', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return 1`)
)

// BenchmarkRedis compares the store with the hand-written implementation, and with what the
// server does at most: plain SETs in pipelines of 32, two for each command.
func BenchmarkRedis(b *testing.B) {
	server, err := redisserver.Start()
	redisserver.Require(b, err)
	b.Cleanup(func() { server.Close() })
	naive := redis.NewClient(&redis.Options{Addr: server.Address()})
	b.Cleanup(func() { naive.Close() })
	s := openRedis(b, server)
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("claim+settle/naive/%d", callers), func(b *testing.B) {
			before := cpuOf(b, server)
			together(b, callers, func(ctx context.Context, _ int64) error { return naiveRedis(ctx, naive) })
			b.ReportMetric((cpuOf(b, server)-before)/float64(b.N)*1e6, "server-µs/op")
		})
		b.Run(fmt.Sprintf("claim+settle/store/%d", callers), func(b *testing.B) {
			before := cpuOf(b, server)
			together(b, callers, func(ctx context.Context, _ int64) error { return claimAndSettle(ctx, s) })
			b.ReportMetric((cpuOf(b, server)-before)/float64(b.N)*1e6, "server-µs/op")
		})
	}
	b.Run("two-sets", func(b *testing.B) {
		program, err := exec.LookPath("redis-benchmark")
		if err != nil {
			b.Skip("install redis-benchmark, which comes with Redis: ", err)
		}
		out, err := exec.CommandContext(b.Context(), program, "-p", server.Port, "-t", "set", "-P", "32", "-d", strconv.Itoa(len(answer.Body)),
			"-r", strconv.Itoa(10*b.N), "-n", strconv.Itoa(2*b.N), "--csv").Output()
		if err != nil {
			b.Fatal(err)
		}
		rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
		if err != nil || len(rows) != 2 {
			b.Fatalf("%s, error %v", out, err)
		}
		rate, err := strconv.ParseFloat(rows[1][1], 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(2/rate*1e9, "ns/op")
		b.ReportMetric(rate/2, "op/s")
	})
}

// cpuOf returns the seconds of processor time that the server has used.
func cpuOf(b *testing.B, server *redisserver.Server) (seconds float64) {
	b.Helper()
	text, err := server.Do("INFO", "cpu")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		_, rest, _ := strings.Cut(text, name)
		var part float64
		if _, err := fmt.Sscan(rest, &part); err != nil {
			b.Fatal(err)
		}
		seconds += part
	}
	return seconds
}

// openRedis opens a store on a server that is empty.
func openRedis(b *testing.B, server *redisserver.Server) *redisstore.Store {
	b.Helper()
	o, cfg, err := redisstore.ParseURL("redis://" + server.Address())
	if err != nil {
		b.Fatal(err)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	if _, err := redisstore.Migrate(b.Context(), client, cfg); err != nil {
		b.Fatal(err)
	}
	s, err := redisstore.Open(b.Context(), client, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// naiveRedis runs a new command with the two scripts.
func naiveRedis(ctx context.Context, client *redis.Client) error {
	id, own := nextID(), owner()
	key := []string{"naive:" + id.Tenant + ":" + id.Operation + ":" + id.Key}
	day := (24 * time.Hour).Milliseconds()
	if granted, err := naiveRedisClaim.Run(ctx, client, key, own, fingerprint, time.Now().UnixMicro(), day).Result(); err != nil || granted != "granted" {
		return fmt.Errorf("claim: %v, error %w", granted, err)
	}
	n, err := naiveRedisSettle.Run(ctx, client, key, own, answer.Status, `{"Content-Type":["application/json"]}`, answer.Body, time.Now().UnixMicro(), day).Int()
	if err == nil && n != 1 {
		err = errors.New("the hold is lost")
	}
	return err
}
