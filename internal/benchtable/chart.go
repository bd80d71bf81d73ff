package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Sizes of the chart, in pixels.
const (
	chartWidth = 930
	rowHeight  = 24
	labelWidth = 330
	barWidth   = 260
	margin     = 12
)

// Colours that can be read on a light and on a dark page.
const (
	colourText   = "#768390"
	colourHit    = "#2da44e"
	colourMissed = "#d4860b"
)

// svg returns a bar for each measured ratio, first those of throughputs and then those of
// latencies and processor times. A bar begins at 1, where Onlyonce is as fast as the baseline. The
// axis is logarithmic, so twice as fast is as far from 1 as half as fast. A vertical line is at each
// row's goal.
func svg(lines []line) string {
	var panels [2][]line
	lowest, highest := 0.5, 2.0
	for _, l := range lines {
		if l.kind != ratio || !l.measured || l.median <= 0 {
			continue
		}
		panel := &panels[0]
		if !l.least {
			panel = &panels[1]
		}
		*panel = append(*panel, l)
		lowest, highest = min(lowest, l.median, l.goal), max(highest, l.median, l.goal)
	}
	at := func(ratio float64) float64 {
		return labelWidth + barWidth*math.Log(ratio/lowest)/math.Log(highest/lowest)
	}
	var b strings.Builder
	y := margin
	write := func(x float64, y int, anchor, text string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, anchor, escape(text))
	}
	vertical := func(x float64, top, bottom int, how string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" %s/>`+"\n", x, top, x, bottom, how)
	}
	for i, heading := range []string{"operations per second: more is better", "latency or processor time: less is better"} {
		if len(panels[i]) == 0 {
			continue
		}
		write(at(1), y+16, "middle", heading)
		y += rowHeight
		top := y
		for _, l := range panels[i] {
			colour := colourMissed
			if l.reached() {
				colour = colourHit
			}
			left, right := min(at(l.median), at(1)), max(at(l.median), at(1))
			write(labelWidth-10, y+16, "end", l.String())
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, y+5, max(right-left, 1), rowHeight-10, colour)
			vertical(at(l.goal), y+2, y+rowHeight-2, `stroke-width="2"`)
			write(labelWidth+barWidth+14, y+16, "start", fmt.Sprintf("%s × %s", decimal(l.median), l.than))
			y += rowHeight
		}
		vertical(at(1), top, y, `stroke-dasharray="3 3"`)
		y += rowHeight / 2
	}
	x := float64(labelWidth)
	for _, entry := range []struct{ colour, text string }{{colourHit, "goal reached"}, {colourMissed, "goal not reached"}} {
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="6" fill="%s"/>`+"\n", x, y+11, entry.colour)
		write(x+12, y+16, "start", entry.text)
		x += 130
	}
	vertical(x, y+2, y+rowHeight-2, `stroke-width="2"`)
	write(x+12, y+16, "start", "goal")
	write(x+70, y+16, "start", "dashed: as much as the other")
	y += rowHeight + margin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="12" fill="%s" stroke="none" role="img">`+"\n", chartWidth, y, colourText) +
		"<title>Onlyonce compared with what one would write by hand, in the same run</title>\n" +
		`<style>line { stroke: ` + colourText + ` }</style>` + "\n" + b.String() + "</svg>\n"
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder never fails
	return b.String()
}
