package console

import (
	"fmt"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/visible"
)

// show makes a text of unknown origin safe to show on one line. The templates escape HTML.
func show(text string) string { return visible.Text(text, "") }

// age formats a duration in its two largest units.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%d h %02d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %02d h", d/day, d%day/time.Hour)
}

// ago says how long ago something was. The clocks of the store and of this machine may
// differ.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return age(time.Since(t)) + " ago"
}

// instant formats a time for people.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// size formats a number of bytes.
func size(n int) string {
	switch {
	case n == 1:
		return "1 byte"
	case n < 1000:
		return strconv.Itoa(n) + " bytes"
	case n < 1000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1000_000)
}

// number formats a number with a space between thousands.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// stateOf returns the state of a record in words, the same as onlyonce records.
func stateOf(r onlyonce.Record) string {
	switch {
	case r.Corrupt:
		return string(r.State) + " (corrupt)"
	case r.State == onlyonce.StateProcessing && r.LeaseLeft <= 0:
		return "processing (lapsed)"
	case r.Final:
		return "failed (final)"
	}
	return string(r.State)
}

// toneOf returns the color of a state: a class of the style sheet.
func toneOf(r onlyonce.Record) string {
	switch {
	case r.Unresolved():
		return "alarm"
	case r.State == onlyonce.StateProcessing:
		return "busy"
	case r.State == onlyonce.StateFailed:
		return "failed"
	}
	return "good"
}

// leftOf returns how long the lease of the record lasts or, if the record is settled,
// how long it is kept.
func leftOf(r onlyonce.Record) string {
	switch {
	case r.State == onlyonce.StateProcessing:
		return age(max(r.LeaseLeft, 0))
	case r.KeepLeft == 0:
		return "until resolved"
	}
	return age(r.KeepLeft)
}

// statusOf returns the status of a stored response, or "" if it has none.
func statusOf(status int) string {
	if status == 0 {
		return ""
	}
	return strconv.Itoa(status)
}
