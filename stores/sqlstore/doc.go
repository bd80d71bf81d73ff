// Package sqlstore keeps records in a SQL database, over database/sql. It
// imports no driver. SQLite is the one engine it knows.
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
// A function that runs in RunTx or SettleTx must return when the database
// returns an error to it: SQLite ends the whole transaction on some errors (the
// disk is full, a context ended in the middle of a write), and what the
// function writes after that stands alone. It must not call the store but
// through WithTx, for SQLite has one writer, and it holds it.
package sqlstore
