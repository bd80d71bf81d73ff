package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// ErrOtherCluster says that a server of another cluster has responded, not of the one on which
// the store was opened. The call has changed no record there, and no response from there counts.
// Otherwise, commands would run once in each cluster. After the servers were replaced while the
// store was idle, open the store again.
var ErrOtherCluster = errors.New("a Redis server or cluster other than the one on which the store was opened has responded: name only servers of one cluster, and restart the program if they were replaced on purpose")

// Migrate makes up an identity, and writes it once to each partition. The names of all other
// keys have it in them. Thus whatever a command does on a server of another cluster, it finds
// none of the store's keys there, and in particular no index.
//
// An identity is the time by the server's clock when it was made up, in microseconds and in
// base 36, and random letters.
const randomLetters = 6

func newIdentity(micros int64) string {
	return strconv.FormatInt(micros, 36) + rand.Text()[:randomLetters]
}

// madeAfter reports whether an identity was made up after a time.
func madeAfter(identity string, micros int64) bool {
	made, err := strconv.ParseInt(identity[:max(0, len(identity)-randomLetters)], 36, 64)
	return err == nil && made > micros
}

// known holds the parts of its identity that a store knows.
type known struct {
	keys    keys
	missing int64 // the server's time when a partition had no identity, or 0
}

// identityOf returns the identity that a partition has, or "", and the server's time.
func identityOf(ctx context.Context, client rueidis.Client, k keys, partition byte) (identity string, now int64, err error) {
	reply, err := identityScript.run(ctx, client, []string{k.identityKey(partition)}, nil)
	if err != nil {
		return "", 0, err
	}
	parts, err := reply.ToArray()
	if err != nil {
		return "", 0, err
	}
	if len(parts) != 2 {
		return "", 0, fmt.Errorf("the script for the identity returned %d values", len(parts))
	}
	if identity, err = parts[0].ToString(); err != nil {
		return "", 0, err
	}
	now, err = parts[1].AsInt64()
	return identity, now, err
}

// identities returns the identity that the partitions have, or "", and which have none. It
// returns an error with a finding if they have different ones.
func identities(ctx context.Context, client rueidis.Client, k keys) (identity string, without map[byte]bool, err error) {
	commands := make(rueidis.Commands, partitions)
	for p := range commands {
		commands[p] = client.B().Get().Key(k.identityKey(byte(p))).Build()
	}
	without = make(map[byte]bool)
	for p, result := range client.DoMulti(ctx, commands...) {
		one, err := result.ToString()
		switch {
		case rueidis.IsRedisNil(err):
			without[byte(p)] = true
		case err != nil:
			return "", nil, err
		case identity != "" && one != identity:
			return "", nil, mixed(identity, one)
		default:
			identity = one
		}
	}
	return identity, without, nil
}

func mixed(a, b string) error {
	return engine.Reject([]onlyonce.Finding{engine.NewFinding(RiskMixed,
		fmt.Sprintf("some servers have records of the store %s and some of the store %s: a command would run once on each", a, b),
		"name only servers of one cluster")}, nil, nil)
}

// identify gives the first partition an identity, unless another call does at the same time.
// It returns the one that the partition has then.
func identify(ctx context.Context, client rueidis.Client, k keys) (string, error) {
	_, now, err := identityOf(ctx, client, k, 0)
	if err != nil {
		return "", err
	}
	made := client.Do(ctx, client.B().Set().Key(k.identityKey(0)).Value(newIdentity(now)).Nx().Build()).Error()
	if made != nil && !rueidis.IsRedisNil(made) {
		return "", made
	}
	identity, _, err := identityOf(ctx, client, k, 0)
	if err == nil && identity == "" {
		err = ErrForgotten
	}
	return identity, err
}

// learn takes in the identity that the servers have when the store is opened.
func (s *Store) learn(ctx context.Context) error {
	k := s.known.Load().keys
	identity, _, err := identities(ctx, s.client, k)
	if err != nil {
		return err
	}
	if identity != "" {
		s.known.Store(&known{keys: k.with(identity)})
		return nil
	}
	_, now, err := identityOf(ctx, s.client, k, 0)
	s.known.Store(&known{k, now})
	return err
}

// current returns the names of the store's keys. If the servers have forgotten the store, it
// asks whether Migrate has been called since.
func (s *Store) current(ctx context.Context, partition byte) (keys, error) {
	was := s.known.Load()
	if was.missing == 0 {
		return was.keys, nil
	}
	identity, _, err := identityOf(ctx, s.client, was.keys, partition)
	switch {
	case err != nil:
		return keys{}, err
	case identity == "":
		return keys{}, ErrForgotten
	case identity != was.keys.identity && !madeAfter(identity, was.missing):
		return keys{}, s.other(identity)
	}
	s.known.CompareAndSwap(was, &known{keys: was.keys.with(identity)})
	return was.keys.with(identity), nil
}

func (s *Store) other(identity string) error {
	return fmt.Errorf("%w (it has the store %s, and the program uses %s)", ErrOtherCluster, identity, s.known.Load().keys.identity)
}

// explain returns why a call about a partition has not found the store's keys.
func (s *Store) explain(ctx context.Context, partition byte, err error) error {
	if !errors.Is(err, ErrForgotten) {
		return err
	}
	was := s.known.Load()
	identity, now, asked := identityOf(ctx, s.client, was.keys, partition)
	switch {
	case asked != nil:
		return fmt.Errorf("the server did not have the store's keys, and could not be asked why: %w", asked)
	case identity == "":
		if was.missing == 0 {
			s.known.CompareAndSwap(was, &known{was.keys, now})
		}
		return err
	case identity != was.keys.identity:
		return s.other(identity)
	}
	return err
}

// place returns where the record of an ID is.
func (s *Store) place(ctx context.Context, id onlyonce.ID) (place, error) {
	hash := id.Hash()
	k, err := s.current(ctx, hash[0])
	return k.of(hash), err
}
