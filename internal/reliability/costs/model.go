//go:build linux

package costs

import "time"

// A Model is a closed queue that is served in batches: callers send one command after the
// other, and while one batch of requests is under way, the others gather for the next one, so
// that half of the callers are in each. A batch takes a fixed time and some time for each
// request in it. A command is two requests, its claim and its settlement.
type Model struct {
	Batch time.Duration // of each batch: the way to the server and back, the flush
	Each  time.Duration // of each request in a batch
}

// requests is how many a command sends, one after the other.
const requests = 2

// Fit returns the model that fits a load by one caller, and one by several.
func Fit(one, several Load) Model {
	alone := one.Latency() / requests                // batch + each
	shared := several.Latency() / requests / overlap // batch + each × callers/2
	each := max(0, time.Duration(float64(shared-alone)/(float64(several.Callers)/2-1)))
	return Model{Batch: max(0, alone-each), Each: each}
}

// overlap is how long a request takes among many, in batches: its caller's last batch has just
// ended, so it waits for the one of the others, and is in the next one.
const overlap = 2

// Latency returns how long a command takes with so many callers.
func (m Model) Latency(callers int) time.Duration {
	if callers == 1 {
		return requests * (m.Batch + m.Each)
	}
	return overlap * requests * (m.Batch + m.Each*time.Duration(callers)/2)
}

// Rate returns the commands per second of so many callers.
func (m Model) Rate(callers int) float64 { return float64(callers) / m.Latency(callers).Seconds() }
