//go:build linux && !race

package ledger

const few = 20 // kills of processes for each store in CI
