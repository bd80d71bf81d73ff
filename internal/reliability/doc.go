// Package reliability holds the instruments that look for broken promises, and one
// that measures costs.
// Its packages drive real stores in real processes while connections, processes
// and servers fail, and check everything that was observed:
//
//   - histories records what concurrent callers of a store were told, and checks
//     each command's history for linearizability against a model of one record.
//   - ledger sends commands through the library while processes are killed, and
//     compares the responses with what was done.
//   - rounds sends commands through the library while the servers of a store are
//     killed and cut off, and compares the responses with what was done.
//   - costs measures what a request costs, and compares a queueing model with it.
//   - faults starts, stops, cuts and kills what the others need.
//   - dynamoserver runs a fake of DynamoDB that can be killed.
//
// The module is for tests and is never tagged.
package reliability
