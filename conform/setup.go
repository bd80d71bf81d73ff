package conform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// learnTarget sends a command, the same body under another key, and a repeat, and finds
// out how a run differs from a replay. It is an error if the command does not succeed.
func (p *probe) learnTarget() (err error) {
	p.command = p.newCommand()
	counted := p.target.CountURL != ""
	before, after := 0, 0
	if counted {
		if before, err = p.readCount(p.command); err != nil {
			return err
		}
	}
	if err := p.sendFirst(); err != nil {
		return err
	}
	if counted {
		if after, err = p.readCount(p.command); err != nil {
			return err
		}
		if p.perRun = after - before; p.perRun < 1 {
			return fmt.Errorf("the count was %d before a command, and is %d after it got %v: give a count that grows (CountURL and Count, or --count-url and --count)", before, after, p.first)
		}
	}
	if p.second, err = p.record("the same body under another key", command{key: newKey(), body: p.command.body, fresh: p.command.fresh}); err != nil {
		return err
	}
	p.repeatRuns, err = p.countRuns(p.command, func() (err error) {
		p.repeat, err = p.record("the first request again", p.command)
		return err
	})
	p.chooseIdentity()
	return err
}

// verifyCount returns an error if one more command does not raise the count by one run:
// then the verdicts that rely on the count may be wrong.
func (p *probe) verifyCount() error {
	if p.perRun == 0 {
		return nil
	}
	c := p.newCommand()
	var a recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		a, err = p.sendCommand("a last command", c)
		return err
	})
	switch {
	case err != nil || !a.ok() || runs == 1:
		return err
	case runs < 1:
		return errors.New("at the end, the count no longer grew when a command ran, so no verdict can be trusted: if it is the length of a page, the page is full; count a number instead, or use {{fresh}} in CountURL (--count-url)")
	}
	return fmt.Errorf("at the end, the count grew by %d when one command ran, so no verdict can be trusted: other clients write there, too; use {{fresh}} in CountURL (--count-url)", runs*p.perRun)
}

// sendFirst sends the first command. If it is rejected, sendFirst sends it again with its
// key in quotes.
func (p *probe) sendFirst() (err error) {
	if p.first, err = p.record("a command", p.command); err != nil || p.first.ok() {
		return err
	}
	rejection := p.first
	if rejection.rejected() {
		p.quoteKeys = true
		if p.first, err = p.record("a command, with its key in quotes", p.command); err != nil || p.first.ok() {
			return err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s got %v, where a success was expected", p.target.Method, p.client.redactor.redactText(p.target.URL), rejection)
	if text := strings.TrimSpace(string(rejection.body)); text != "" {
		fmt.Fprintf(&b, ": %q", shorten(p.client.redactor.redactText(text), maxLine))
	}
	if to := rejection.header.Get("Location"); to != "" && rejection.status/100 == 3 {
		fmt.Fprintf(&b, "; it redirects to %q: use that URL", to)
	}
	return errors.New(b.String())
}

// record sends a command and adds the exchange to firstExchanges.
func (p *probe) record(note string, c command) (response, error) {
	a, err := p.sendCommand(note, c)
	p.firstExchanges = append(p.firstExchanges, a.exchange)
	return a.response, err
}

// chooseIdentity sets the fields of p that tell a replay from a second run.
func (p *probe) chooseIdentity() {
	distinct := differences(p.first, p.second)
	changed := differences(p.first, p.repeat)
	for _, part := range distinct {
		if !slices.Contains(changed, part) {
			p.identity = append(p.identity, part)
		}
	}
	if p.first.replayHeader() == "" {
		p.marker = p.repeat.replayHeader()
	}
	switch {
	case p.perRun > 0:
		p.replays = p.repeat.ok() && p.repeatRuns == 0
	case p.marker != "" && len(distinct) == 0:
		p.replays = p.repeat.ok()
	default: // a repeat that shares no identifying part with the first ran again, even if it is marked as a replay
		p.replays = p.repeat.ok() && len(p.identity) > 0
	}
	if len(p.identity) == 0 {
		p.identity = distinct
	}
	p.detectsRuns = p.perRun > 0 || p.marker != "" || len(p.identity) > 0
}

// sameRun reports whether two responses are of the same run, as far as that can be seen.
func (p *probe) sameRun(a, b response) bool {
	of, other := a.parts(), b.parts()
	for _, part := range p.identity {
		if of[part] != other[part] {
			return false
		}
	}
	return a.ok() == b.ok()
}

// onlyMarked reports whether a replay can be recognized by its marker only.
func (p *probe) onlyMarked() bool { return len(p.identity) == 0 && p.marker != "" }

func (p *probe) isMarked(a response) bool {
	return p.marker != "" && a.header.Get(p.marker) != "" && a.replayHeader() != ""
}

// isRepeatOf reports whether b is of the same run as a. The request of b was a repeat that
// was sent after a had arrived.
func (p *probe) isRepeatOf(a, b response) bool {
	if p.onlyMarked() && b.ok() && !p.isMarked(b) {
		return false
	}
	return p.sameRun(a, b)
}

// isReplay reports whether b is of the same run as a or is marked as a replay. The request
// of b need not be a repeat of a's.
func (p *probe) isReplay(a, b response) bool {
	return p.isMarked(b) || len(p.identity) > 0 && p.sameRun(a, b)
}
