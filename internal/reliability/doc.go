// Package reliability has the tests that look for broken guarantees, and one that measures
// costs. Its packages call real stores from real processes while connections, processes and
// servers fail, and check every result:
//
//   - histories records the results of concurrent calls of a store, and checks each
//     command's history for linearizability against a model of one record.
//   - ledger sends commands through the library while processes are killed, and
//     compares the responses with the rows that the commands wrote.
//   - rounds sends commands through the library while the servers of a store are
//     killed and cut off, and compares the responses with a log of the commands' effects.
//   - costs measures what a request costs, and compares a queueing model with it.
//   - faults starts, stops and kills servers and processes, and cuts connections.
//   - dynamoserver runs a fake of DynamoDB that can be killed.
//
// The module is for tests and is never tagged.
package reliability
