// Package items is a catalogue service. It shows the shortest way to use the
// library: its POST is a handler in the middleware httponce.WrapTx, so that the
// item and the stored response are one commit.
//
// Only a response with status 201 is stored: an invalid body leaves its key unused.
// A body with members that the service does not know is invalid.
package items
