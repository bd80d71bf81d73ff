// Package transact is the protocol by which the SQL stores run a caller's function
// in a transaction of its own: begin, take the command's locks and look, decide
// whether the function runs, call it, write the settlement, commit, and find out
// whether the commit took place if its answer was lost. An Engine does what differs
// from one store to another.
package transact
