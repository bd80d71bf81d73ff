package sandboxes

import "context"

// A Runtime runs sessions.
type Runtime interface {
	// Start starts a session and returns its handle, which names it in every
	// process of this machine, also after a restart.
	Start(ctx context.Context, s Session) (handle string, err error)

	// Alive reports whether the session of the handle runs.
	Alive(handle string) bool

	// Stop ends the session of the handle, with everything that it started,
	// and returns when it is gone. Ending it again is no error.
	Stop(ctx context.Context, handle string) error
}

// A Session is what a Runtime is to start.
type Session struct {
	Dir     string // the sandbox's own workspace folder
	Command string
	Args    []string
}
