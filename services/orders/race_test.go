//go:build race

package orders

const underRace = true
