// Package sandboxes is a control plane for sandboxes: logical resources with a
// hard end, a workspace, and a session that comes and goes.
//
// It shows the explicit way to use the library. There is no middleware: create
// and extend_ttl call onlyonce.DoTx in their handler, so that the sandbox's row
// and the answer are one commit. A key belongs to its owner. Everything that the
// service decides, a rejection like sandbox_expired too, is an answer, and a
// repeat gets it byte for byte; a body that is not valid in itself is rejected
// before the key is looked at, and leaves it unused.
//
// Two requests are the same if they ask for the same: what is compared is the
// parsed body with its defaults, not its bytes.
//
// Time is the database's. Instants are kept and shown in whole seconds, cut, and
// a sandbox expires at the instant that is shown, not a part of a second later;
// its ttl counts from created_at as shown. Several server processes may share one
// database and one directory on one machine: each ends the sessions that it
// started, and those whose server died.
package sandboxes
