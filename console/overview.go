package console

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// An overview is the first page. Its texts and tones change while it is open, by name.
type overview struct {
	HasMeter, HasOutbox bool
	Groups              []string
	Outcomes            []outcomeRow
	Text                map[string]string // of the elements with data-live
	Tone                map[string]string // of the elements with data-tone: a class of the style sheet
	Path                map[string]string // of the chart, by the number of a group
	Width, Height       int               // of the chart
}

type outcomeRow struct{ ID, Name, Means string }

func (c *console) overview(w http.ResponseWriter, r *http.Request, s *session) {
	c.render(w, s, http.StatusOK, "overview", "Overview", c.newOverview(r.Context()))
}

// newOverview returns the numbers of this moment.
func (c *console) newOverview(ctx context.Context) overview {
	o := overview{
		HasMeter: c.meter != nil, HasOutbox: c.outbox != nil, Width: chartWidth, Height: chartHeight,
		Text: map[string]string{}, Tone: map[string]string{}, Path: map[string]string{},
	}
	o.addReading(c.gauges.fresh(ctx))
	if c.meter != nil {
		sample := c.meter.sample()
		o.addSample(&sample)
		o.addPurge(c.meter.purge.Load())
	}
	o.Text["now"] = time.Now().UTC().Format("15:04:05 UTC")
	return o
}

const unknownNumber = "–"

// set sets a text and its tone.
func (o *overview) set(name, text, tone string) { o.Text[name], o.Tone[name] = text, tone }

func (o *overview) addReading(r reading) {
	switch {
	case !r.healthKnown:
		o.set("health", "Checking", "")
	case r.healthy:
		o.set("health", "Healthy", "good")
	default:
		o.set("health", "Takes no commands", "alarm")
	}
	o.set("unresolved", unknownNumber, "")
	o.Text["unresolved-oldest"], o.Text["running-oldest"] = "", ""
	if r.unresolvedKnown {
		o.set("unresolved", number(r.unresolved), "good")
		if r.unresolved > 0 {
			o.set("unresolved", number(r.unresolved), "alarm")
			o.Text["unresolved-oldest"] = "oldest for " + age(r.oldestUnresolved)
		}
	}
	o.set("running", unknownNumber, "")
	if r.runningKnown {
		o.Text["running"] = number(r.running)
		if r.running == maxCounted {
			o.Text["running"] += "+"
		}
		if r.running > 0 {
			o.Text["running-oldest"] = "oldest for " + age(r.oldestRunning)
		}
	}
	o.Text["tab-decisions"], o.Text["tab-messages"] = r.decisions(), r.parkedCount()
	o.set("waiting", unknownNumber, "")
	o.set("parked", unknownNumber, "")
	o.Text["waiting-oldest"] = ""
	if r.lagKnown {
		o.set("waiting", number(r.lag.Waiting), "")
		o.set("parked", number(r.lag.Parked), "good")
		if r.lag.Parked > 0 {
			o.Tone["parked"] = "alarm"
		}
		if r.lag.Waiting > 0 {
			o.Text["waiting-oldest"] = "oldest for " + age(r.lag.Oldest)
		}
	}
}

func (o *overview) addSample(s *sample) {
	for i, of := range meterOutcomes {
		id := "outcome-" + string(of.outcome)
		o.Outcomes = append(o.Outcomes, outcomeRow{ID: id, Name: string(of.outcome), Means: of.means})
		tone := ""
		if of.group == attention && s.counts[i] > 0 {
			tone = "alarm"
		}
		o.set(id, number(s.counts[i]), tone)
	}
	o.Groups = groupNames[:]
	paths, top := chart(s)
	for of, path := range paths {
		o.Path[strconv.Itoa(of)] = path
	}
	o.Text["top"] = rate(top)
	o.Text["rate"] = rate(float64(s.last) / 10)
	for kind, name := range []string{"executed", "replayed"} {
		for _, p := range []int{50, 95, 99} {
			text := unknownNumber
			if d, ok := s.percentile(kind, p); ok {
				text = latency(d)
			}
			o.Text[fmt.Sprintf("%s-p%d", name, p)] = text
		}
	}
}

func (o *overview) addPurge(p *purgeEvent) {
	switch {
	case p == nil:
		o.set("purge", "None so far", "")
		o.Text["purged"] = "since the start of this process"
	case p.failed:
		o.set("purge", "Failed", "alarm")
		o.Text["purged"] = ago(p.at)
	default:
		o.set("purge", ago(p.at), "good")
		o.Text["purged"] = number(p.purged) + " records deleted"
	}
}

// rate formats a number per second.
func rate(v float64) string {
	if v >= 10 || v == float64(int(v)) {
		return number(int(v+.5)) + " / s"
	}
	return fmt.Sprintf("%.1f / s", v)
}

// latency formats a duration with two or three digits.
func latency(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
