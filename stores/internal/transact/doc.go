// Package transact is the protocol by which the SQL stores run a caller's function
// in a transaction of its own: begin, take the command's locks and look, decide
// whether the function runs, call it, write the settlement, commit, and find out
// whether the commit took place if it got no response. A Transactor has the parts that differ
// from one store to another.
//
// A COMMIT that got no response is resolved in these steps:
//
//  1. Transactor.Trace waits, on another connection, until the transaction has ended: it
//     holds the lock named by its token until then.
//  2. Transactor.Trace reads which transaction settled the command's row last, and the
//     floor of deleted fences.
//  3. Commit.Committed compares that with the token. If the row has the token, the
//     transaction was committed. If nothing can have replaced the token, it was not
//     (ErrNotCommitted). If other transactions have followed, the outcome
//     cannot be determined (ErrMovedOn).
//  4. If the outcome cannot be determined, or the server stays unreachable, the caller
//     gets onlyonce.ErrInDoubt, and httponce tells the client to repeat the request.
package transact
