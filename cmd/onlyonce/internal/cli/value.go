package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A Choice lists the values of a setting that has only a few.
type Choice []string

// String returns the values as "a, b or c".
func (c Choice) String() string {
	last := len(c) - 1
	if last < 1 {
		return strings.Join(c, "")
	}
	return strings.Join(c[:last], ", ") + " or " + c[last]
}

// Mistake describes the mistake in a value, or returns "".
func (c Choice) Mistake(value string) string {
	if slices.Contains(c, value) {
		return ""
	}
	return fmt.Sprintf("%q is not known: write %v", value, c)
}

// AddFlag declares a flag, with its values in the help and for the shell.
func (c Choice) AddFlag(cmd *cobra.Command, to *string, flag, value, usage string) {
	cmd.Flags().StringVar(to, flag, value, fmt.Sprintf("%s: `%v`", usage, c))
	CompleteValues(cmd, flag, c...)
}

// CheckFlag returns an error unless the flag has one of the values.
func (c Choice) CheckFlag(flag, value string) error {
	if text := c.Mistake(value); text != "" {
		return Usagef("--%s: %s", flag, text)
	}
	return nil
}

// The bounds of a duration that a flag or a file of settings sets.
const (
	shortest = 10 * time.Millisecond
	longest  = 10000 * time.Hour
)

// DurationMistake describes the mistake in the value of a setting, or returns "". orZero says
// how to write 0 and what it means, such as "0s for not at all"; without it, 0 is wrong.
func DurationMistake(d time.Duration, orZero string) string {
	switch {
	case d >= shortest && d <= longest, d == 0 && orZero != "":
		return ""
	case orZero != "":
		orZero = ", or " + orZero
	}
	return fmt.Sprintf("%v is out of bounds: write %v to %v%s", d, shortest, longest, orZero)
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// NameMistake describes the mistake in a name that settings refer to, or returns "".
func NameMistake(name string) string {
	if nameForm.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("%q is not a valid name: write 1 to 64 characters from a-z A-Z 0-9 _ -", name)
}
