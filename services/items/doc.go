// Package items is a catalogue service. It shows the shortest way to use the
// library: its POST is a handler in the middleware httponce.WrapTx, so that the
// item and the stored answer are one commit.
//
// Only an answer of 201 is stored: a body that is not valid leaves its key
// unused. A body with members that the service does not know is not valid.
package items
