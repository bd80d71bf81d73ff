// Package redisstore keeps records in Redis 7 or Valkey: a single server, one
// behind Sentinel, or a cluster.
//
// Every step is one Lua script, which uses the server's clock. A record is one
// value, whose key Redis deletes an hour after the record has expired: until
// then it preserves the fence, so the fence of a command increases even if the
// server's clock is set back by up to an hour. The clock of the calling process
// does not matter.
//
// # What a record survives
//
// With appendonly=yes, records survive a crash of the client and of the Redis
// process. With appendfsync=everysec, the default of Redis, a crash of the
// machine may forget the last two seconds; with appendfsync=always it does not.
//
// Replication is asynchronous. A failover may forget what the primary had
// accepted and the replica had not received, and those commands may then run
// again. Config.Replicas makes every call wait until that many replicas have
// received it, which makes such a loss rare but not impossible: Redis may promote
// a replica that has not received it. If a double execution must not
// happen even then, use a store in PostgreSQL, MySQL or SQLite.
//
// Redis must never evict records: Open rejects every maxmemory-policy but
// noeviction. When the memory is full, claims fail, and nothing is lost.
//
// # A server that has forgotten its records
//
// Migrate makes 256 small keys, and a claim of a new command needs one of them. If
// the server has lost its data, or somebody flushed it, they are missing, and
// every claim fails with ErrForgotten until Migrate is called again. Otherwise
// commands that had run would run again. Therefore, call Migrate when you
// set up the server and not at every start of your program.
//
// # Clusters
//
// The IDs are spread over 256 hash tags, and all that belongs to one ID is in one slot.
// A caller can't choose the slot of a command. Calls go to primaries only.
package redisstore
