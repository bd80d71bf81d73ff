package docsite

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var color = regexp.MustCompile(`--(\w+): #([0-9a-f]{6}|[0-9a-f]{3});`)

// luminance returns the relative luminance of a color, as WCAG 2 defines it.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	sum := 0.0
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		share := float64(n) / 255
		if share <= .04045 {
			sum += weight * share / 12.92
		} else {
			sum += weight * math.Pow((share+.055)/1.055, 2.4)
		}
	}
	return sum
}

func TestStyle_TextHasTheContrastOfLevelAAInTheLightAndInTheDark(t *testing.T) {
	style, err := assets.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, found := strings.Cut(string(style), "@media (prefers-color-scheme: dark)")
	dark, _, _ = strings.Cut(dark, "*,")
	if !found {
		t.Fatal("the style has no colors for the dark")
	}
	for scheme, rules := range map[string]string{"light": light, "dark": dark} {
		colors := map[string]float64{}
		for _, match := range color.FindAllStringSubmatch(rules, -1) {
			colors[match[1]] = luminance(t, match[2])
		}
		for text, grounds := range map[string][]string{
			"text": {"ground", "card", "mark"}, "dim": {"ground", "card"}, "link": {"ground", "card"}, "string": {"card"}, "keyword": {"card"},
		} {
			for _, ground := range grounds {
				a, b := colors[text], colors[ground]
				if contrast := (max(a, b) + .05) / (min(a, b) + .05); contrast < 4.5 {
					t.Errorf("%s: %s on %s has the contrast %.2f, want 4.5", scheme, text, ground, contrast)
				}
			}
		}
	}
}
