// Package dynamostore keeps records in a table of Amazon DynamoDB.
//
// A record is one item. Every change is a conditional write that requires the item to be the
// one that was read, and every read is strongly consistent. A call whose response was lost
// reads the record again, which shows by its owner and its fence whether the call has taken
// effect. A new command costs one write of its item and one of the index of open commands, and
// so does its settlement; a repeat costs one read.
//
// The tests of this package run against Dynalite, an emulator, and against a fake of their own,
// which is compared with Dynalite and adds transactions, the items of failed conditions,
// throttling, lost responses and wrong Dates. AWS itself is not tested.
//
// # What a record survives
//
// DynamoDB stores each write in several data centers of a region before it confirms it.
// A record survives every failure that the table survives. A global table with eventual consistency (MREC)
// does not show a claim in one region to the others in time, so two regions may run one
// command at once: Open rejects it, unless the risk is accepted because all processes use
// the same region.
//
// # Clocks
//
// No condition of DynamoDB can use the service's clock, and the clocks of the calling
// machines may be wrong. But each response has a Date, in whole seconds. A process keeps a
// lower and an upper bound for what the service's clock shows, which follow from the Dates
// and the times of its requests, and adds what has passed on its own monotonic clock. How a
// machine's wall clock is set does not matter to the store; AWS itself rejects requests
// whose signatures are some minutes off.
//
// Leases and keeps begin at the upper bound and have ended once the lower one, less
// Config.ClockSkew, has passed their end. So none ends early, but each ends late: by the
// ClockSkew, and by as much as the bounds are apart. That is at most a little more than a
// second when a process begins, and less with every response. For this time, one process may
// still show a lease or a record that has ended for another. A record is not changed while
// it may have expired for another process.
//
// This rests on two assumptions: that the Dates of any two of DynamoDB's servers differ by at
// most the ClockSkew, and that the monotonic clock of a process is wrong by at most one part
// in 2,000. A Date that contradicts the bounds by more than the ClockSkew shows that one of
// them does not hold; the usual cause is that the machine was suspended, which stops its
// monotonic clock. The process then restarts its clock, and uses it only once two Dates in
// a row agree. It writes again what it was writing by the old one before it returns. If the
// Dates keep contradicting each other, or there are none, all calls fail with an error that
// says so.
//
// If the assumptions are violated and the process cannot notice, a lease may be taken over
// early, by as much as the clocks are wrong, so that two attempts overlap. Even then, at most
// one of them can settle: a settlement requires the owner and the fence of the current hold.
// A record may also expire early by as much, after which its command may run again.
//
// # A table that has lost its records
//
// Migrate creates the table and one item in it that stays. If somebody deleted the table or
// its items, that item is missing, and every claim of a new command fails with ErrForgotten
// until Migrate is called again. Without this check, commands that had already run would run
// again. Therefore, call Migrate when you set up the table, not at every start of your
// program. A process that is granted new commands looks for the item once a second, so in the
// second after it was deleted, claims may be granted.
//
// A table that is restored from a backup contains the item. Commands that ran after the
// backup was made may then run again.
//
// # Expired records
//
// DynamoDB deletes expired records by the attribute "ttl", which Migrate turns on, at least
// an hour after they have expired, and often days later. A record that has expired counts as
// absent from then on, whether it is still there or not. What is left of it preserves the
// fence.
//
// # Unresolved records
//
// Migrate creates the global secondary index "open", which has the records whose commands run
// and those with an unknown outcome. Unresolved queries its 64 partitions, and reads each of
// these records. A claim adds its record to the index, and a settlement with a known outcome
// removes it, which is one write each; a renewal and a transaction write nothing there. With
// RiskIndex in Config.AcceptRisks, Migrate does not create the index, the two writes are saved,
// and Unresolved returns an error. DynamoDB fills an index that is added later with the
// records that are open then.
//
// # Large results
//
// An item has at most 400 KB. If the result and the steps of a record have more than 384 KiB
// together, they are split into further items, which are written before the record refers to
// them. They have at most 16 MiB together; a larger result is an onlyonce.ErrTooLarge and
// changes nothing. A process that dies before the record refers to what it has written
// leaves these items behind. DynamoDB deletes them a day after it would have deleted the
// record; with KeepForever, they stay. An ID and its fingerprint together have at most 64
// KiB.
//
// # Transactions
//
// With onlyonce.DoTx, a function adds items of your tables to a Tx, and one TransactWriteItems
// writes them together with the record: either all of it takes effect, or nothing. While the
// function runs, a lock in the record's item keeps other claims out, for at most the claim's
// lease. Others still see the record as it was before. A process that dies leaves only this
// lock behind; no outcome is unknown then.
//
// DynamoDB takes at most 100 items of 4 MB together, one of which is the record's, and each
// item once. If a condition of one of your items is not met, nothing is written, the command is
// released, and the error is a *types.TransactionCanceledException with the reasons.
//
// A TransactWriteItems whose response was lost is sent again. It can't take effect twice,
// because each requires the record as it was before. The store therefore does not rely on the
// ClientRequestToken, which DynamoDB remembers for ten minutes only. If the record has changed
// by then, it shows by its revision whether the transaction was committed. If another attempt
// has changed it since, or DynamoDB stays unreachable, the error is onlyonce.ErrInDoubt.
//
// A command in a transaction costs one write for the lock and twice the writes of its items and
// of its record, and none of the index. A result that is split into further items has them
// written before the transaction, which only refers to them.
//
// # Throttling
//
// A request that DynamoDB throttles is repeated with pauses that double from 25 milliseconds
// to a second, until Config.Timeout is over. The call then fails with DynamoDB's error, and
// nothing has changed. Keys are hashes, so that commands spread over all partitions, but one
// partition takes at most 1,000 writes of 1 KB a second.
//
// The client needs the permissions dynamodb:GetItem, PutItem, DeleteItem, DescribeTable and
// DescribeTimeToLive on the table, UpdateItem for transactions, Scan for List, Query on the
// index for Unresolved, and CreateTable, UpdateTable and UpdateTimeToLive for Migrate. By
// default, a client of the AWS SDK keeps only 10 idle connections: raise MaxIdleConnsPerHost of
// its HTTP client to the number of concurrent calls.
package dynamostore
