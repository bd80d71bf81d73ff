// Package sqlstore keeps records in a SQL database, over database/sql: SQLite,
// PostgreSQL 13 or newer, MySQL 8 and MariaDB 10.6 or newer. It imports no
// driver, and asks the database what it is.
//
// The records live in the caller's own database, so that RunTx and SettleTx
// commit a caller's rows and the record of its command together, and WithTx
// joins a transaction that is already open. Migrate makes the tables.
//
// # SQLite
//
// Open takes one connection of the pool for writing, with synchronous=FULL and
// a write-ahead log, and hands everything that is written at the same time to
// it as one transaction. Lookups, lists and replays read on other connections.
//
// What was answered survives a crash of the process, of the system and of the
// machine, as far as its disk keeps what it said it had flushed. Several
// processes on one machine may use one file. The clock is the machine's: set
// forward, leases lapse early and the fence keeps their holders out; set back,
// they last longer. There is no failover, and a backup that is restored has
// forgotten what was done since.
//
// SQLite makes the file, and those beside it, with the process's umask: often
// every user of the machine can read them, and the responses of all callers in
// them. Diagnose finds that. Open does not refuse it and changes no mode, for the
// file is the caller's and may hold other things: make it with mode 0600 before
// it is opened (SQLite gives the others the same), or in a folder of mode 0700.
//
// A function that runs in RunTx or SettleTx must return when the database
// returns an error to it: SQLite ends the whole transaction on some errors (the
// disk is full, a context ended in the middle of a write), and what the
// function writes after that stands alone. It must not call the store but
// through WithTx, for SQLite has one writer, and it holds it.
//
// # PostgreSQL
//
// Every step is one statement that commits by itself and decides by the
// server's clock, read after the statement's waits. More than 16 callers at once
// write in groups, if the driver takes slices as arrays (pgx does). Nothing
// relies on a session: PgBouncer in transaction mode will do, with a driver that
// then prepares nothing (pgx: default_query_exec_mode=exec). The pool's isolation
// level, time zone and synchronous_commit=off do not matter: the store's own
// transactions, those that functions of RunTx and SettleTx get included, are at
// READ COMMITTED and wait for the disk.
//
// What was answered survives a crash of the client, of the server and of its
// machine. A failover to a standby that commits did not wait for (one that is
// not in synchronous_standby_names) may forget what was answered last, and a
// command may then run again; with a synchronous standby it does not.
//
// A transaction of the caller's, by WithTx, at REPEATABLE READ or SERIALIZABLE
// may get an error that is onlyonce.ErrUnavailable and says to run the whole
// transaction again. A claim in it makes others who claim the same command wait
// for its end.
//
// # MySQL and MariaDB
//
// Every step is an autocommit statement by primary key, and the transactions of
// functions are at READ COMMITTED, as on PostgreSQL. Ids are compared as bytes,
// so no collation makes two commands one. The pool's isolation level, time zone,
// character set and clientFoundRows do not matter; sql_mode must be strict.
// Groups take two connections of a pool that has at least six. An answer must
// fit into max_allowed_packet.
//
// A claim in a transaction of the caller's, by WithTx, makes others who claim the
// same command wait for its end, at most innodb_lock_wait_timeout (50 s if it was
// never set). At REPEATABLE READ, the server's default, InnoDB may then keep new
// commands waiting that have nothing to do with it: when a page is split between
// them, the wait becomes a lock on the gap. At READ COMMITTED it does not: for
// pools whose transactions claim, add transaction_isolation=%27READ-COMMITTED%27
// to the DSN (MariaDB before 11.1: tx_isolation).
//
// What was answered survives a crash of the client, of the server and of its
// machine, with innodb_flush_log_at_trx_commit=1 and, where there is a binary
// log, sync_binlog=1. A failover to an asynchronous replica may forget what was
// answered last. A Galera cluster is safe only with one node that is written to.
//
// After a deadlock the server has rolled the transaction back, and the driver
// goes on as if it had not. RunTx and SettleTx work without autocommit, and look
// for their savepoint before they commit: nothing that a function wrote after
// that is there for good, and it runs again, or its caller gets an error if it
// hid the server's. In a transaction that the caller opened, WithTx refuses to
// go on after that, but what the caller's own statements wrote meanwhile each
// stood alone: return every error. A statement that commits by itself, such as
// CREATE TABLE, has no place in any of these.
//
// # Fences
//
// A released or resolved command leaves a row on a server for an hour, for its
// fence, and a settled one stays for a tenth of a second at least. So the fence
// of a command grows although the server's clock is set back and its record was
// deleted.
package sqlstore
