// Package redisstore keeps records in Redis 7 or Valkey: a single server, one
// behind Sentinel, or a cluster.
//
// Every operation is one Lua script, which uses the server's clock. The clock of
// the calling process does not matter. A record is one value. Redis deletes its
// key an hour after the record has expired. Until then, the value preserves the
// fence, so that the fence of a command increases even if the server's clock is
// set back by up to an hour.
//
// # What a record survives
//
// With appendonly=yes and appendfsync=always, records survive a crash of the client,
// of the Redis process, and of the machine. With appendfsync=everysec, the default
// of Redis, a crash of the machine may lose the writes of the last two seconds. So may
// a crash of the process while the disk is slow.
//
// Replication is asynchronous. A failover may lose writes that the primary had
// accepted and the replica had not received. Those commands may then run again.
//
// Config.Replicas makes every call wait until that many replicas have received
// what it wrote and read. If it is the number of all replicas, even of those that are
// never promoted, a failover loses nothing that a call has returned. If it is smaller,
// Redis may promote a replica that has not received everything.
//
// After a full synchronization, a replica has its records on disk only once Redis
// has rewritten its append-only file. A crash before that loses them.
//
// docs/guarantees.md lists all conditions. If a command must not run twice even
// when they are not met, use a store in PostgreSQL, MySQL or SQLite.
//
// Redis must never evict records. Open rejects every maxmemory-policy other than
// noeviction. When the memory is full, claims of new commands fail, commands that have
// begun are settled, and nothing is lost.
//
// A result that is longer than the server's proto-max-bulk-len, by default 512 MB, is an
// onlyonce.ErrTooLarge. The store knows a lower limit if the client's user may read it (CONFIG GET).
//
// # A server that does not respond
//
// Callers that come together share one run of a script. Such a call returns only once the
// script has, even if its own context has ended, because it may have taken effect. While
// the server does not respond, that takes up to 15 seconds and the ReplicaTimeout. A call
// whose context has no deadline fails, too: within a minute with the default
// ReplicaTimeout.
//
// # A server that has lost its records
//
// Migrate creates 256 small keys, and a claim of a new command needs one of them. If
// the server has lost its data, or somebody flushed it, the keys are missing, and
// every claim of a new command fails with ErrForgotten until Migrate is called again.
// A store that was idle during that time fails with ErrOtherCluster until it is opened again.
// Without this check, commands that had already run would run again. Therefore, call
// Migrate when you set up the server, not at every start of your program.
//
// A server that is restored from a backup, or started with an old disk, has these keys.
// Commands that ran after the backup was made may then run again.
//
// # Servers of another cluster
//
// Migrate makes up an identity for the store, which all names of its keys contain. A store
// that comes to the servers of another cluster, because an address leads there, finds none of
// its keys. The call changes no record there, and fails with ErrOtherCluster. This holds for
// every call, also after a host has come up that was down when the store was opened. A copy
// of a server's data, such as a restored backup, has the same identity and is not recognized.
// Open takes the identity that it finds, so a program that starts while only the servers of
// another store respond uses that one.
//
// # Clusters
//
// The IDs are spread over 256 hash tags. All keys that belong to one ID are in one
// slot. A caller can't choose the slot of a command. Calls go to primaries only. Concurrent
// callers share no run of a script, because a script must keep to one slot.
//
// A proxy between the client and the servers, such as twemproxy, is not supported, unless
// it passes everything on to one primary: records that it spreads over servers have no
// common clock, and WAIT is about one connection.
package redisstore
