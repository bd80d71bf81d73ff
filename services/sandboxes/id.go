package sandboxes

import "github.com/onlyonce-go/onlyonce/services/publicid"

// What an identifier starts with says what it names.
var (
	sandboxIDs   = publicid.NewType("sandbox-")
	workspaceIDs = publicid.NewType("ws-")
	sessionIDs   = publicid.NewType("session-")
	requestIDs   = publicid.NewType("req-")
	serverIDs    = publicid.NewType("server-")
)

func newID(of publicid.Type) string { return of.Format(publicid.New()) }

// isID reports whether s is as newID writes it, and so safe to be the name of a
// file.
func isID(of publicid.Type, s string) bool {
	_, err := of.Parse(s)
	return err == nil
}
