// Package items is a catalog service. It shows the shortest way to use the library: its
// POST handler is wrapped in the middleware httponce.WrapTx, so that the item and the
// stored response are one commit.
//
// Only a response with status 201 is stored: an invalid body leaves its key unused. A
// body with unknown members is invalid.
package items
