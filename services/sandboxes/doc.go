// Package sandboxes is a control plane for sandboxes: logical resources with a fixed
// end, a workspace, and a session that can be started and stopped.
//
// It shows the explicit way to use the library. There is no middleware: create
// and extend_ttl call onlyonce.DoTx in their handler, so that the sandbox's row
// and the response are one commit. A key belongs to its owner. Every decision of the
// service is stored, including rejections such as sandbox_expired, and a repeat gets it
// byte for byte. An invalid body is rejected before the key is read, and leaves the key
// unused.
//
// Two requests are the same if their parsed bodies, with defaults, are the same. Their
// bytes are not compared.
//
// The clock is the database's. Times are stored and shown in whole seconds, rounded
// down. A sandbox expires at the second that is shown, and its TTL counts from
// created_at as shown. Several server processes can share one database and one
// directory on one machine: each ends the sessions that it started, and those of
// servers that died.
package sandboxes
