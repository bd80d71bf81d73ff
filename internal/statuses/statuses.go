// Package statuses has sets of HTTP statuses, as settings name them, and the one after which the
// outcome of a command is unknown by default.
package statuses

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Canceled is the status with which gateways say that a call was canceled while its server worked
// on it. It says nothing about the command, and does not come from it.
const Canceled = 499

// A Range is the statuses from one to another.
type Range struct{ From, To int }

// Parse reads a status such as 502, a class such as 5xx, or a range such as 520-529.
func Parse(text string) (r Range, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if class, ok := strings.CutSuffix(text, "xx"); ok {
		from, to = class+"00", class+"99"
	} else if !isRange {
		to = from
	}
	r.From, err = strconv.Atoi(from)
	if err == nil {
		r.To, err = strconv.Atoi(to)
	}
	if err != nil || len(from) != 3 || len(to) != 3 || r.From < 200 || r.To > 599 || r.From > r.To {
		return Range{}, fmt.Errorf("%q is not a status: write one such as 502, a class such as 5xx, or a range such as 520-529", text)
	}
	return r, nil
}

// String returns the text that Parse reads.
func (r Range) String() string {
	switch {
	case r.From == r.To:
		return strconv.Itoa(r.From)
	case r.From%100 == 0 && r.To == r.From+99:
		return strconv.Itoa(r.From/100) + "xx"
	}
	return strconv.Itoa(r.From) + "-" + strconv.Itoa(r.To)
}

// A Set is the statuses of all its ranges.
type Set []Range

// Has reports whether the set has a status.
func (s Set) Has(status int) bool {
	return slices.ContainsFunc(s, func(r Range) bool { return r.From <= status && status <= r.To })
}

// leavesUnknown are 502 and 504, with which a gateway reports that it has lost its server, and
// those with which content delivery networks do.
var leavesUnknown = Set{{502, 502}, {504, 504}, {520, 529}}

// Unknown reports whether it is unknown, after a response of a server with this status, whether
// the command took effect: after Canceled, and after the statuses of 500 or more that are in the
// set. A nil set is 502, 504, and 520 to 529.
func (s Set) Unknown(status int) bool {
	switch {
	case status < 500:
		return status == Canceled
	case s == nil:
		return leavesUnknown.Has(status)
	}
	return s.Has(status)
}
