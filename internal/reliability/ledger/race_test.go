//go:build linux && race

package ledger

const few = 6 // kills of processes for each store in CI
