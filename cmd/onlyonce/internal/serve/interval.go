package serve

import (
	"errors"
	"time"
)

// off is the interval that turns a periodic task off.
const off = "off"

var errInterval = errors.New(`write a duration, such as 10m, or off`)

// An interval is the value of a flag: a duration, or 0, which is written as off.
type interval time.Duration

// Set is for pflag.
func (i *interval) Set(text string) error {
	if text == off {
		*i = 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d == 0 {
		return errInterval
	}
	*i = interval(d)
	return nil
}

// Type is for pflag.
func (i *interval) Type() string { return "duration" }

func (i *interval) String() string {
	if *i == 0 {
		return off
	}
	return time.Duration(*i).String()
}
