//go:build linux && race

package ledger

const killsInCI = 6 // kills of processes for each store in CI
