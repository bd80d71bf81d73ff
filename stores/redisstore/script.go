package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

//go:embed scripts/*.lua
var files embed.FS

// A script is sent by its hash, and in full only to a server that does not know it.
type script struct{ text, hash string }

var (
	claimScript   = load("", "claim")
	settleScript  = load(whateverMemory, "settle")
	renewScript   = load(whateverMemory, "renew")
	lookScript    = load("", "look")
	replaceScript = load("", "replace")

	identityScript   = load("", "identity")
	pageScript       = load("", "page")
	existScript      = load("", "exist")
	freshScript      = load("", "fresh")
	countScript      = load(whateverMemory, "count")
	dueScript        = load("", "due")
	unresolvedScript = load(whateverMemory, "unresolved")
)

// whateverMemory begins a script that also writes while the server's memory is full. A
// command that has begun can be settled, because its outcome would be lost otherwise. The
// server has no memory for new commands then, so these are few.
const whateverMemory = "#!lua flags=allow-oom\n"

// markScript writes a key of no meaning.
const markScript = whateverMemory + "return redis.call('SET', KEYS[1], '')"

// load returns the script of a name, which begins with a line of flags or with none, and
// with what all have in common. It fills in {fence_keep}.
func load(flags, name string) *script {
	var text strings.Builder
	text.WriteString(flags)
	for _, file := range []string{"head", name} {
		b, err := files.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err) // the files are part of the program
		}
		text.Write(b)
	}
	filled := strings.NewReplacer(
		"{fence_keep}", strconv.FormatInt(record.FenceKeep.Milliseconds(), 10),
		"{longest_shared}", strconv.Itoa(group.LongestShared),
	).Replace(text.String())
	hash := sha1.Sum([]byte(filled))
	return &script{text: filled, hash: hex.EncodeToString(hash[:])}
}

// command returns the command that runs the script where it is known.
func (s *script) command(c rueidis.CommandClient, keys, args []string) rueidis.Completed {
	return c.B().Evalsha().Sha1(s.hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (s *script) run(ctx context.Context, c rueidis.CommandClient, keys, args []string) (rueidis.RedisMessage, error) {
	return s.reply(ctx, c, c.Do(ctx, s.command(c, keys, args)), keys, args)
}

// reply returns the reply to the command for the script. It sends the script in full if the
// server did not know it.
func (s *script) reply(ctx context.Context, c rueidis.CommandClient, result rueidis.RedisResult, keys, args []string) (rueidis.RedisMessage, error) {
	reply, err := result.ToMessage()
	if failed, ok := rueidis.IsRedisErr(err); ok && failed.IsNoScript() {
		reply, err = c.Do(ctx, c.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToMessage()
	}
	return reply, failure(err)
}
