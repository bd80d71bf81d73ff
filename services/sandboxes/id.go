package sandboxes

import "github.com/onlyonce-go/onlyonce/services/publicid"

// The prefix of an ID determines its type.
var (
	sandboxIDs   = publicid.NewType("sandbox-")
	workspaceIDs = publicid.NewType("ws-")
	sessionIDs   = publicid.NewType("session-")
	requestIDs   = publicid.NewType("req-")
	serverIDs    = publicid.NewType("server-")
)

func newID(of publicid.Type) string { return of.Format(publicid.New()) }

// isID reports whether s has the form that newID returns, and is therefore safe as the
// name of a file.
func isID(of publicid.Type, s string) bool {
	_, err := of.Parse(s)
	return err == nil
}
