package conform

import (
	"fmt"
	"strings"
	"time"
)

// burstRounds is the number of bursts: a race does not show every time.
const burstRounds = 3

func checkBurst(p *probe) (result, error) {
	rejected := 0
	var shown []Exchange
	for range burstRounds {
		found, n, err := p.runBurst()
		if err != nil || found.verdict != Pass {
			return found, err
		}
		rejected += n
		shown = found.exchanges
	}
	detail := fmt.Sprintf("Of %d identical concurrent requests, one ran, in each of %d rounds", p.burst, burstRounds)
	if rejected > 0 {
		return pass(fmt.Sprintf("%s; %d of the others were rejected.", detail, rejected), shown...), nil
	}
	return pass(detail+"; all of them got the response of that run.", shown...), nil
}

// runBurst sends all but the last byte of many equal requests, and then their last bytes.
func (p *probe) runBurst() (found result, rejected int, err error) {
	c := p.newCommand()
	var responses []recordedResponse
	var after recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		if responses, err = p.sendConcurrently(p.commandRequest(c)); err != nil {
			return err
		}
		after, err = p.retryUntilSuccess("the same request, after all responses", c)
		return err
	})
	if err != nil {
		return result{}, 0, err
	}
	var ran *recordedResponse
	unmarked := 0
	for _, a := range responses {
		if a.ok() && !p.isMarked(a.response) {
			unmarked++
		}
		switch {
		case !a.ok():
			rejected++
		case ran == nil:
			ran = &a
		case !p.sameRun(ran.response, a.response):
			return fail("Two of the requests got the responses of two runs.", ran.exchange, a.exchange), 0, nil
		}
	}
	shown := []Exchange{responses[0].exchange, after.exchange}
	if ran != nil {
		shown[0] = ran.exchange
	}
	switch {
	case runs > 1:
		return fail(fmt.Sprintf("%d of %d requests took effect.", runs, len(responses)), shown...), 0, nil
	case !after.ok():
		return fail(fmt.Sprintf("After all responses, a repeat still got %v.", after.response), shown...), 0, nil
	case ran != nil && !p.isRepeatOf(ran.response, after.response):
		return fail("After all responses, a repeat got the response of another run.", shown...), 0, nil
	case unmarked > 1 && p.perRun == 0 && p.onlyMarked():
		return unsupported(fmt.Sprintf("%d of %d responses are not marked as replays, and may come from one run or from several: give the URL of a count of effects (CountURL, --count-url).", unmarked, len(responses)), shown...), 0, nil
	}
	return pass("", shown...), rejected, nil
}

func (p *probe) sendConcurrently(s request) ([]recordedResponse, error) {
	calls := make([]*call, 0, p.burst)
	for range p.burst {
		c, err := p.client.open(p.ctx, s)
		if err != nil {
			for _, c := range calls {
				c.close()
			}
			return nil, err
		}
		c.write(1)
		calls = append(calls, c)
	}
	responses := make([]recordedResponse, p.burst)
	done := make(chan struct{}, p.burst)
	for _, c := range calls {
		c.write(0)
	}
	for i, c := range calls {
		go func() {
			a := c.response()
			responses[i] = recordedResponse{a, c.exchange(fmt.Sprintf("one of %d concurrent requests", p.burst), a)}
			done <- struct{}{}
		}()
	}
	for range calls {
		<-done
	}
	return responses, p.ctx.Err()
}

func checkInFlight(p *probe) (result, error) {
	best := unsupported("Every response arrived before the repeat could be sent.")
	for _, after := range p.delays() {
		found, overlapped, err := p.sendOverlapping(after)
		switch {
		case err != nil || overlapped && found.verdict != Pass:
			return found, err
		case overlapped && (best.verdict != Pass || strings.Contains(found.detail, "rejected")):
			best = found
		}
	}
	return best, nil
}

// sendOverlapping sends a request and, after a delay, its repeat. overlapped reports
// whether the repeat was sent before the first response arrived.
func (p *probe) sendOverlapping(after time.Duration) (found result, overlapped bool, err error) {
	c := p.newCommand()
	var first, repeat, later recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		if first, repeat, overlapped, err = p.sendPair(p.commandRequest(c), after); err != nil || !overlapped {
			return err
		}
		later, err = p.retryUntilSuccess("the same request, after both responses", c)
		return err
	})
	if err != nil || !overlapped {
		return result{}, overlapped, err
	}
	return p.judgeOverlapping(runs, first, repeat, later), true, nil
}

func (p *probe) sendPair(s request, after time.Duration) (first, repeat recordedResponse, overlapped bool, err error) {
	one, err := p.client.open(p.ctx, s)
	if err != nil {
		return first, repeat, false, err
	}
	two, err := p.client.open(p.ctx, s)
	if err != nil {
		one.close()
		return first, repeat, false, err
	}
	one.write(1)
	two.write(1)
	answered := make(chan response, 1)
	one.write(0)
	go func() { answered <- one.response() }()
	if err := p.sleep(after); err != nil {
		one.close()
		two.close()
		return first, repeat, false, err
	}
	select {
	case <-answered:
		two.close()
		return first, repeat, false, nil
	default:
	}
	two.write(0)
	b := two.response()
	a := <-answered
	return recordedResponse{a, one.exchange("a command", a)}, recordedResponse{b, two.exchange("its repeat, sent before the response arrived", b)}, true, p.ctx.Err()
}

// judgeOverlapping returns the result for two overlapping requests. Either of them may be
// the one that ran, because they may have arrived in reverse order.
func (p *probe) judgeOverlapping(runs int, first, repeat, later recordedResponse) result {
	shown := []Exchange{first.exchange, repeat.exchange, later.exchange}
	ran, other := first, repeat
	if !ran.ok() {
		ran, other = repeat, first
	}
	switch {
	case runs > 1:
		return fail("The repeat of a running request took effect, too.", shown...)
	case !ran.ok():
		return fail(fmt.Sprintf("Neither the request nor its repeat succeeded: they got %v and %v.", first.response, repeat.response), shown...)
	case other.ok() && !p.sameRun(ran.response, other.response):
		return fail("The repeat of a running request got the response of a second run.", shown...)
	case !other.ok() && !other.busy():
		return fail(fmt.Sprintf("The repeat of a running request got %v, which does not tell the client to wait and retry.", other.response), shown...)
	case !later.ok() || !p.isRepeatOf(ran.response, later.response):
		return fail(fmt.Sprintf("After both responses, a repeat got %v instead of the response of the run.", later.response), shown...)
	case other.ok() && p.perRun == 0 && p.onlyMarked() && !p.isMarked(ran.response) && !p.isMarked(other.response):
		return unsupported("Neither the response of a running request nor that of its repeat is marked as a replay, so they may come from one run or from two: give the URL of a count of effects (CountURL, --count-url).", shown...)
	case other.ok():
		return pass("The repeat of a running request got the response of the run.", shown...)
	}
	return pass(fmt.Sprintf("The repeat of a running request was rejected with %v.", other.response), shown...)
}
