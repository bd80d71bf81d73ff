//go:build linux

package costs

import (
	"fmt"
	"strconv"
)

// A Documented is a row of the table of costs in docs/stores.md. Round trips and writes are
// exact, bytes are an upper bound.
type Documented struct {
	Name                        string
	Trips, Writes, Bytes, Log   int // of a new command; Log 0: unknown
	RepeatTrips                 int // by the process that ran the command
	ForeignTrips, ForeignWrites int // by another, for the first time
	RepeatBytes                 int // the larger of both
}

// Rows are those of the table.
var Rows = []Documented{
	{Name: "SQLite", Writes: 2, Log: 48_000},
	{Name: "PostgreSQL by sqlstore", Trips: 2, Writes: 2, Bytes: 1_400, Log: 3_000, RepeatTrips: 1, ForeignTrips: 2, RepeatBytes: 1_600},
	{Name: "PostgreSQL by pgxstore", Trips: 2, Writes: 2, Bytes: 1_400, Log: 3_000, RepeatTrips: 1, ForeignTrips: 2, RepeatBytes: 1_600},
	{Name: "MariaDB by sqlstore", Trips: 2, Writes: 2, Bytes: 1_200, Log: 7_000, RepeatTrips: 1, ForeignTrips: 4, ForeignWrites: 3, RepeatBytes: 2_400},
	{Name: "Redis", Trips: 2, Writes: 2, Bytes: 1_600, Log: 1_800, RepeatTrips: 1, ForeignTrips: 1, RepeatBytes: 1_400},
	{Name: "NATS", Trips: 5, Writes: 2, Bytes: 3_500, RepeatTrips: 3, ForeignTrips: 3, RepeatBytes: 4_000},
	{Name: "etcd", Trips: 2, Writes: 2, Bytes: 2_300, Log: 2_300, RepeatTrips: 1, ForeignTrips: 2, RepeatBytes: 2_400},
	{Name: "memory"},
}

// String returns the row in Markdown.
func (d Documented) String() string {
	return fmt.Sprintf("| %s | %d | %d | %s | %s | %d | %d | %d | %s |",
		d.Name, d.Trips, d.Writes, bytes(d.Bytes), bytes(d.Log), d.RepeatTrips, d.ForeignTrips, d.ForeignWrites, bytes(d.RepeatBytes))
}

func bytes(n int) string {
	switch {
	case n == 0:
		return "–"
	case n < 1000:
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
