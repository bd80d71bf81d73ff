package integration

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkSQLiteBatched compares the store with a program in C, which runs the two statements
// of BenchmarkSQLite's baseline, and commits those of all callers together. It has no callers
// that wait for it, so it is faster than a library can be. Both write to one file, each to its
// own table, which has one record or 1,000,000 at first, and begin to copy the log into the file
// at the same length.
func BenchmarkSQLiteBatched(b *testing.B) {
	for _, file := range []struct {
		name    string
		records int
		callers []int
	}{{"empty", 1, []int{16, 256}}, {"1M", 1_000_000, []int{256}}} {
		b.Run(file.name, func(b *testing.B) {
			for _, callers := range file.callers {
				on := newBenchWith(b, file.records) // a new file
				b.Run(fmt.Sprintf("store/%d", callers), func(b *testing.B) {
					together(b, callers, func(ctx context.Context, _ int64) error { return claimAndSettle(ctx, on.store) })
				})
				b.Run(fmt.Sprintf("writer/%d", callers), func(b *testing.B) { on.writeBatches(b, callers) })
			}
		})
	}
}

// checkpointPages is that of the store (stores/internal/sqlite).
const checkpointPages = 4000

// writeBatches runs b.N commands with the program in C. It skips the benchmark if there is no
// compiler or no library.
func (on *bench) writeBatches(b *testing.B, callers int) {
	program := filepath.Join(b.TempDir(), "batched_writer")
	if out, err := exec.CommandContext(b.Context(), "cc", "-O2", "-o", program, "testdata/batched_writer.c", "-lsqlite3").CombinedOutput(); err != nil {
		b.Logf("%s", out)
		b.Skip("a C compiler and SQLite's library with its header (libsqlite3-dev) are not installed")
	}
	out, err := exec.CommandContext(b.Context(), program, on.file, strconv.Itoa(callers), strconv.Itoa(b.N), strconv.Itoa(checkpointPages)).CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(ns/float64(b.N), "ns/op")
	b.ReportMetric(float64(b.N)/ns*1e9, "op/s")
}
