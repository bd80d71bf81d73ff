// Package pgxstore keeps records in PostgreSQL 13 or later, over a pgx pool. It
// uses the tables of sqlstore, and both may use one database at a time.
//
// The records live in the caller's own database, so that RunTx and SettleTx
// commit a caller's rows and the record of its command together, and WithTx
// joins a transaction that is already open. Migrate makes the tables.
//
// Concurrent claims, renewals and settlements of one process travel together, in
// one round trip and one commit, on connections that the store takes out of the
// pool's keeping as it needs them: up to two for writing, two for reading and,
// while somebody waits for a command that runs elsewhere, one to listen. A lone
// caller waits for nobody. What runs in a transaction uses the pool.
//
// What was answered survives a crash of the process, of the server and of its
// machine; synchronous_commit is on for the store's own writes whatever the pool
// says. After a failover to an asynchronous standby the last commits may be
// forgotten, and their commands can run again. The clock is the server's.
// Isolation levels do not matter to the promise: at REPEATABLE READ and
// SERIALIZABLE a function may be run again, or get an error that says to.
// Through PgBouncer in transaction mode all works but the listening, in place of
// which waiters poll.
package pgxstore
