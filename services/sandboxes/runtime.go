package sandboxes

import "context"

// A Runtime runs sessions.
type Runtime interface {
	// Start starts a session and returns its handle, which identifies it in every
	// process of this machine, also after a restart of the server.
	Start(ctx context.Context, s Session) (handle string, err error)

	// Alive reports whether the session of the handle is running.
	Alive(handle string) bool

	// Stop ends the session of the handle, with everything that it started, and
	// returns when it has ended. It is not an error if the session has ended already.
	Stop(ctx context.Context, handle string) error
}

// A Session describes a session for a Runtime to start.
type Session struct {
	Dir     string // the directory of the sandbox's workspace
	Command string
	Args    []string
}
