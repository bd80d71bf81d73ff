package logging

import (
	"bytes"
	"io"
	"log"
	"log/slog"
)

// SetDefault makes l the default logger, also of packages that print with the
// standard library's log.
func SetDefault(l *slog.Logger) {
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
