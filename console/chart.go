package console

import (
	"fmt"
	"math"
	"strings"
)

// The size of the chart, in the units of its SVG.
const (
	chartWidth  = bars * barWidth
	chartHeight = 120
	barWidth    = 10
)

// chart returns the path of each group of a sample, whose bars stand on each other, and
// the rate per second at the top of the chart.
func chart(s *sample) (paths [groups]string, top float64) {
	highest := 0
	for _, bar := range s.bars {
		sum := 0
		for _, n := range bar {
			sum += n
		}
		highest = max(highest, sum)
	}
	top = roundUp(float64(highest) / barSeconds)
	var text [groups]strings.Builder
	for i, bar := range s.bars {
		floor := float64(chartHeight)
		for of, n := range bar {
			if n == 0 {
				continue
			}
			height := max(float64(n)/barSeconds/top*chartHeight, 1) // a single event is visible
			floor -= height
			fmt.Fprintf(&text[of], "M%d %.1fh%dv%.1fh-%dz", i*barWidth+1, floor, barWidth-2, height, barWidth-2)
		}
	}
	for of := range text {
		paths[of] = text[of].String()
	}
	return paths, top
}

// roundUp returns 1, 2 or 5 times a power of ten that is not less than v, and at least 1.
func roundUp(v float64) float64 {
	if v <= 1 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*power {
			return step * power
		}
	}
	return 10 * power
}
