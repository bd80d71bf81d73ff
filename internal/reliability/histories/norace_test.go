//go:build linux && !race

package histories

const raceDetector = false
