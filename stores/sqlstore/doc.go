// Package sqlstore keeps records in a SQL database, through database/sql:
// SQLite, PostgreSQL 13 or newer, MySQL 8 and MariaDB 10.6 or newer. It imports
// no driver and detects the type of the database.
//
// The records are in the caller's own database, so RunTx and SettleTx commit a
// caller's rows and the record of its command together, and WithTx joins a
// transaction that is already open. Migrate creates the tables.
//
// Every store deletes expired records in the background, also those of other
// processes, until it is closed: see Config.PurgeEvery.
//
// # SQLite
//
// Open takes one connection of the pool for writing, with synchronous=FULL and
// a write-ahead log. Concurrent writes go through this connection as one
// transaction. Lookups, lists and replays read on other connections.
//
// Stored responses survive a crash of the process, the system and the machine,
// provided that the disk keeps the data that it reported as flushed. Several
// processes on one machine may use one file. The clock is that of the machine.
// If it is set forward, leases lapse early, and the fence keeps their holders
// out. If it is set back, leases last longer. There is no failover, and a
// restored backup lacks all commands that ran after it was made.
//
// SQLite creates the file and the files next to it with the process's umask.
// Often, every user of the machine can then read them, including the responses
// of all callers. Diagnose reports that. Open does not reject such a file and
// does not change its mode, because the file is the caller's and may hold other
// data. Create it with mode 0600 before it is opened (SQLite gives the other
// files the same mode), or put it in a directory of mode 0700.
//
// A function that runs in RunTx or SettleTx must return when the database
// returns an error to it. SQLite ends the whole transaction on some errors,
// such as a full disk or a context that ended in the middle of a write, and
// later writes of the function are then committed on their own. The function
// must call the store only through WithTx, because SQLite has a single writer,
// which the function is holding.
//
// # PostgreSQL
//
// Every step is one autocommit statement that uses the server's clock, read
// after the statement has waited for locks. More than 16 concurrent callers
// write in groups, if the driver accepts slices as arrays (pgx does). Nothing
// relies on a session: PgBouncer in transaction mode works, with a driver that
// then prepares no statements (pgx: default_query_exec_mode=exec). The pool's
// isolation level, time zone and synchronous_commit=off do not matter. The
// store's own transactions, including those that functions of RunTx and
// SettleTx get, are at READ COMMITTED and wait for the disk.
//
// Stored responses survive a crash of the client, the server and its machine. A
// failover to a standby that commits did not wait for (one that is not in
// synchronous_standby_names) may lose the last responses, and their commands
// may then run again. With a synchronous standby, it does not: the store returns a
// record only once the standby has it, even if the commit of the record was
// interrupted while it waited for the standby, and even if the pool still has
// connections to a former primary that was not stopped.
//
// A connection may lead to a server that does not belong to the one on which the store was
// opened, as when a URL names both. Calls change nothing there, and fail with ErrOtherCluster.
// A standby has the identity of its primary. A copy of the database has the same identity, too,
// and is not recognized.
//
// Every connection of the pool must find the same tables. Open rejects
// connections whose client_encoding is not UTF8. A function of RunTx or
// SettleTx that sets another search_path, which may have tables of the same names,
// commits nothing.
// A parameter that a function sets for its session (SET) outlives the transaction, and
// the pool's other callers get that connection: use SET LOCAL. After SET
// synchronous_commit = local, for example, what that connection commits does not wait for
// the synchronous standbys.
//
// At REPEATABLE READ or SERIALIZABLE, a transaction of the caller that is used
// with WithTx may get an error that is onlyonce.ErrUnavailable and says to run
// the whole transaction again. A claim in such a transaction makes other
// callers that claim the same command wait for its end.
//
// # MySQL and MariaDB
//
// Every step is an autocommit statement by primary key, and the transactions of
// functions are at READ COMMITTED, as on PostgreSQL. IDs are compared as bytes,
// so no collation treats two commands as one. The pool's time zone and
// clientFoundRows do not matter, and neither do its character set, unless it is
// UTF-16, UTF-32 or UCS-2, or its isolation level, unless it is READ UNCOMMITTED:
// Open rejects these. Open also rejects sessions without
// autocommit or with completion_type=CHAIN, whose statements would not be
// committed, and a sql_mode that is not strict or changes what a statement means,
// such as MariaDB's ORACLE. Groups take two connections of a pool that has at least six. A
// response must fit into max_allowed_packet, and a ref into 64 KiB: one that does not
// is an onlyonce.ErrTooLarge. A tenant and an operation may have 1024 bytes each, and
// a key 4096: for an ID that is longer, nothing runs.
//
// A claim in a transaction of the caller, through WithTx, makes other callers
// that claim the same command wait for the transaction's end, at most
// innodb_lock_wait_timeout (50 s by default). At REPEATABLE READ, the server's
// default, InnoDB may then also make unrelated new commands wait: when a page
// is split between them, the wait becomes a lock on the gap. At READ COMMITTED,
// it does not. For pools whose transactions claim, add
// transaction_isolation=%27READ-COMMITTED%27 to the DSN (MariaDB before 11.1:
// tx_isolation).
//
// Stored responses survive a crash of the client, the server and its machine,
// with innodb_flush_log_at_trx_commit=1 and, if there is a binary log,
// sync_binlog=1 and binlog_format ROW or MIXED. A failover to an asynchronous replica may lose the last
// responses, and their commands may then run again. With a semi-synchronous
// replica, it does not: the store returns a record only once a replica has
// received it, with either wait point, even if the commit of the record was
// interrupted while it waited. Open rejects a server on which commits stop
// waiting for replicas after less than a day. A Galera cluster is safe only if
// all writes go to one node, with wsrep_sync_wait=7.
//
// A connection may lead to a server that does not belong to the one on which the store was
// opened, as when a name is given to another machine. Calls change nothing there, and fail with
// ErrOtherCluster. A replica has the identity of its primary. A copy of the database has the same
// identity, too, and is not recognized.
//
// After a deadlock, the server has rolled the transaction back, but the driver
// continues as if it had not. RunTx and SettleTx therefore work without
// autocommit and look for their savepoint before they commit. Nothing that a
// function wrote after the deadlock is committed. The function runs again, or
// its caller gets an error if the function hid the server's error. In a
// transaction that the caller opened, WithTx does not continue after a
// deadlock. The caller's own statements since then were each committed on their
// own, so return every error. Statements that commit implicitly, such as CREATE
// TABLE, must not be used in any of these transactions.
//
// The store's statements name the database that it was opened on. A function may
// therefore use another one (USE), and its record and its messages are still found.
// A variable that a function sets for its session outlives the transaction, and the pool's
// other callers get that connection: set it back, or use SET STATEMENT (MariaDB) or
// SET_VAR hints (MySQL). If a function sets a session's timestamp, the store uses that
// time as the clock in this session.
//
// # A server that does not respond
//
// RunTx and SettleTx wait at most 15 seconds for a server to begin a transaction,
// to take the settlement, to commit or to roll back. If there is no response before
// COMMIT was sent, the error is onlyonce.ErrUnavailable, and nothing of the
// transaction is committed. After that, they look for the outcome for up to 10
// seconds, and return onlyonce.ErrInDoubt if they cannot find out. The statements
// of a function are limited by its context only. Claim and Lookup wait at most one
// minute, even if their context does not end. A Settle that gets no response within 15
// seconds fails, so that a Guard tries again before the lease ends. The idle connections
// of the pool are closed first, because after a failover they may lead to a server that
// is gone.
//
// The connection is closed. A driver that ignores the context in COMMIT and ROLLBACK,
// such as github.com/go-sql-driver/mysql, keeps it until the server responds or TCP
// gives up, unless the DSN limits that (readTimeout).
//
// # Fences
//
// On a server, a released or resolved command leaves a row for one hour to
// preserve its fence, and a settled record stays for at least a tenth of a
// second. So the fence of a command increases even if the server's clock is set
// back and the record was deleted.
package sqlstore
