//go:build linux && !race

package ledger

const killsInCI = 20 // kills of processes for each store in CI
