// Package pgxstore keeps records in PostgreSQL 13 or later, through a pgx pool.
// It uses the tables of sqlstore, and both packages may use one database at the
// same time.
//
// The records are in the caller's own database, so RunTx and SettleTx commit a
// caller's rows and the record of its command together, and WithTx joins a
// transaction that is already open. Migrate creates the tables.
//
// Every store deletes expired records in the background, also those of other
// processes, until it is closed: see Config.PurgeEvery.
//
// Concurrent claims, renewals and settlements of one process share one round
// trip and one commit. They use connections that the store takes from the pool
// as it needs them: up to two for writing, two for reading and, while a caller
// waits for a command that runs in another process, one for listening. A single
// caller does not wait for others. Transactions use the connections of the
// pool.
//
// Stored responses survive a crash of the process, the server and its machine;
// synchronous_commit is on for the store's own writes, whatever the pool's
// setting is. After a failover to an asynchronous standby, the last commits may
// be lost, and their commands can run again. The clock is that of the server.
// The promise holds at every isolation level. At REPEATABLE READ and
// SERIALIZABLE, a function may run again or get an error that says to run it
// again. Through PgBouncer in transaction mode, everything works except
// listening; waiters poll instead. The pool must then prepare no statements:
// add default_query_exec_mode=exec to its URL.
//
// A parameter that a function sets for its session (SET) outlives the transaction, and
// the pool's other callers, and the store, may get that connection: use SET LOCAL. After
// SET synchronous_commit = local, for example, what that connection commits does not wait
// for the synchronous standbys.
//
// A connection may lead to a server that does not belong to the one on which the store was
// opened, as when a URL names both. Calls change nothing there, and fail with ErrOtherCluster.
// A standby has the identity of its primary. A copy of the database has the same identity, too,
// and is not recognized.
package pgxstore
