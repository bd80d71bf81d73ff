package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes of the chart, in pixels.
const (
	chartWidth = 760
	rowHeight  = 26
	labelWidth = 250
	barWidth   = 330
	margin     = 12
)

// Colours that can be read on a light and on a dark page.
const (
	colourText   = "#6e7781"
	colourThan   = "#8c959f"
	colourHit    = "#2da44e"
	colourMissed = "#bf8700"
)

// svg returns a bar for each line with a ratio of throughputs, from 0 to the largest ratio,
// and a vertical line at 1, where Onlyonce is as fast as the baseline.
func svg(lines []line) string {
	var bars []line
	most := 1.0
	for _, l := range lines {
		if l.least && l.measured() {
			bars = append(bars, l)
			most = max(most, l.median)
		}
	}
	height := 2*margin + rowHeight*(len(bars)+1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="13" role="img">`+"\n", chartWidth, height)
	b.WriteString("<title>Operations per second of Onlyonce, compared with what one would write by hand in the same run</title>\n")
	for i, l := range bars {
		y := margin + rowHeight*i
		colour := colourMissed
		if l.reached() {
			colour = colourHit
		}
		width := l.median / most * barWidth
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", labelWidth-8, y+17, colourText, escape(l.String()))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/>`+"\n", labelWidth, y+4, width, rowHeight-8, colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="%s">%s × <tspan fill="%s">%s</tspan></text>`+"\n", labelWidth+width+6, y+17, colourText, decimal(l.median), colourThan, escape(l.than))
	}
	one, foot := labelWidth+barWidth/most, margin+rowHeight*len(bars)
	fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-dasharray="3 3"/>`+"\n", one, margin, one, foot+4, colourThan)
	fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="%s">1: as fast</text>`+"\n", one, foot+19, colourThan)
	b.WriteString("</svg>\n")
	return b.String()
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder never fails
	return b.String()
}
