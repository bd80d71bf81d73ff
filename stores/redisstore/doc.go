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
// With appendonly=yes and appendfsync=always, records survive a crash of the client,
// of the Redis process, and of the machine. With appendfsync=everysec, the default
// of Redis, a crash of the machine may forget the last two seconds, and so may a crash
// of the process while the disk is slow.
//
// Replication is asynchronous. A failover may forget what the primary had
// accepted and the replica had not received, and those commands may then run
// again. Config.Replicas makes every call wait until that many replicas have
// received it. If it is the number of all replicas, a failover forgets nothing that a
// call has returned; if it is smaller, Redis may promote a replica that has not
// received it. A server that has just been synchronized as a whole has its records on
// disk only once Redis has rewritten its append-only file: a crash before that forgets
// them. docs/guarantees.md has all conditions. If a double execution must not
// happen even then, use a store in PostgreSQL, MySQL or SQLite.
//
// Redis must never evict records: Open rejects every maxmemory-policy but
// noeviction. When the memory is full, claims fail, and nothing is lost.
//
// # A server that does not respond
//
// Callers that come together share one run of a script. Such a call returns only once the
// script has, even if its own context has ended, because it may have taken effect. While
// the server does not respond, that takes up to 15 seconds and the ReplicaTimeout. A call
// whose context has no deadline fails, too: within a minute with the default
// ReplicaTimeout.
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
// A caller can't choose the slot of a command. Calls go to primaries only. Where scripts
// must keep to one slot, callers share none.
package redisstore
