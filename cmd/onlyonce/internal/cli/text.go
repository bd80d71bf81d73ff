package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Age formats a duration in its two largest units.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// Cell formats text for a column of a table. It quotes text that a terminal or a
// reader could take for something else.
func Cell(text string) string {
	if text == "" {
		return "-"
	}
	quoted := strconv.Quote(text)
	if len(quoted) > len(text)+2 || text == "-" || strings.TrimSpace(text) != text || strings.Contains(text, "  ") {
		return quoted
	}
	return text
}

// SomeOrAll rejects a command line that is neither a URL with names nor a URL with
// --all; otherwise is the text of that error.
func SomeOrAll(all *bool, otherwise string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch named := len(args) > 1; {
		case len(args) == 0:
			return Usagef("missing argument: URL")
		case named == *all:
			return Usagef("%s", otherwise)
		}
		return nil
	}
}
