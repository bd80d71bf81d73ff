package logging

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// SetDefault makes l the default logger, also of packages that print with the
// standard library's log. From then on, a line that nobody reads any more is lost, and does
// not end the process.
func SetDefault(l *slog.Logger) {
	// Without a handler, a write to a standard output or error whose reader has gone ends the
	// process. Programs that the process starts do not inherit a handler, as they would with
	// signal.Ignore.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	slog.SetDefault(l)
	log.SetOutput(unquoting{log.Writer()})
}

// unquoting writes lines of net/http without quotations of an upstream's
// response, which may be secret.
type unquoting struct{ to io.Writer }

func (u unquoting) Write(line []byte) (int, error) {
	kept := line
	if rest := []byte("Unsolicited response received on idle HTTP channel"); bytes.HasPrefix(line, rest) {
		kept = append(rest, '\n')
	}
	if _, err := u.to.Write(kept); err != nil {
		return 0, err
	}
	return len(line), nil
}
