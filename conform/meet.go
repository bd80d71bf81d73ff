package conform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// meet learns what the target does with a command, with the same body under
// another key, and with a repeat. It is an error if it does not take the first.
func (p *probe) meet() (err error) {
	p.command = p.new()
	counted := p.target.CountURL != ""
	before, after := 0, 0
	if counted {
		if before, err = p.count(p.command); err != nil {
			return err
		}
	}
	if err := p.meetFirst(); err != nil {
		return err
	}
	if counted {
		if after, err = p.count(p.command); err != nil {
			return err
		}
		if p.unit = after - before; p.unit < 1 {
			return fmt.Errorf("the count was %d, and is %d after a command got %v: look up one that grows (CountURL and Count, or --count-url and --count)", before, after, p.first)
		}
	}
	if p.second, err = p.met("the same body under another key", command{key: newKey(), body: p.command.body, fresh: p.command.fresh}); err != nil {
		return err
	}
	p.repeatRuns, err = p.counting(p.command, func() (err error) {
		p.repeat, err = p.met("the first request again", p.command)
		return err
	})
	p.learn()
	return err
}

// stillCounts is an error if what is counted is not what this run's commands
// did: then what was said of them may be wrong.
func (p *probe) stillCounts() error {
	if p.unit == 0 {
		return nil
	}
	c := p.new()
	var a seen
	runs, err := p.counting(c, func() (err error) {
		a, err = p.ask("a last command", c)
		return err
	})
	switch {
	case err != nil || !a.ok() || runs == 1:
		return err
	case runs < 1:
		return errors.New("in the end the count no longer grew when a command ran, so that none of the rows is to be trusted: a page of a list has a longest length; count a number, or use {{fresh}} in CountURL (--count-url)")
	}
	return fmt.Errorf("in the end the count grew by %d when one command ran, so that none of the rows is to be trusted: others write there, too; use {{fresh}} in CountURL (--count-url)", runs*p.unit)
}

// meetFirst sends the first command, with its key in quotes if the target does
// not take it without.
func (p *probe) meetFirst() (err error) {
	if p.first, err = p.met("a command", p.command); err != nil || p.first.ok() {
		return err
	}
	rejection := p.first
	if rejection.rejected() {
		p.quoted = true
		if p.first, err = p.met("a command, with its key in quotes", p.command); err != nil || p.first.ok() {
			return err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s got %v, where a success was expected", p.target.Method, p.wire.censor.text(p.target.URL), rejection)
	if text := strings.TrimSpace(string(rejection.body)); text != "" {
		fmt.Fprintf(&b, ": %q", shorten(p.wire.censor.text(text), longestLine))
	}
	if to := rejection.header.Get("Location"); to != "" && rejection.status/100 == 3 {
		fmt.Fprintf(&b, "; it redirects to %q: give that URL", to)
	}
	return errors.New(b.String())
}

// met asks for a command and shows it in the rows about these first requests.
func (p *probe) met(note string, c command) (response, error) {
	a, err := p.ask(note, c)
	p.shown = append(p.shown, a.exchange)
	return a.response, err
}

// learn decides by what a run and a replay are known.
func (p *probe) learn() {
	tells := differences(p.first, p.second)
	changed := differences(p.first, p.repeat)
	for _, part := range tells {
		if !slices.Contains(changed, part) {
			p.identity = append(p.identity, part)
		}
	}
	if p.first.mark() == "" {
		p.marker = p.repeat.mark()
	}
	switch {
	case p.unit > 0:
		p.replays = p.repeat.ok() && p.repeatRuns == 0
	case p.marker != "" && len(tells) == 0:
		p.replays = p.repeat.ok()
	default: // whatever it says of itself, a repeat that has nothing of the first ran
		p.replays = p.repeat.ok() && len(p.identity) > 0
	}
	if len(p.identity) == 0 {
		p.identity = tells
	}
	p.sees = p.unit > 0 || p.marker != "" || len(p.identity) > 0
}

// alike reports whether a response is that of the same run, by all that can be
// told.
func (p *probe) alike(a, b response) bool {
	of, other := a.parts(), b.parts()
	for _, part := range p.identity {
		if of[part] != other[part] {
			return false
		}
	}
	return a.ok() == b.ok()
}

// marks reports whether the marker is all by which a response shows that it is a replay.
func (p *probe) marks() bool { return len(p.identity) == 0 && p.marker != "" }

func (p *probe) isMarked(a response) bool {
	return p.marker != "" && a.header.Get(p.marker) != "" && a.mark() != ""
}

// repeats reports whether b, the response to a repeat that was sent after a had come, is
// that of the run of a.
func (p *probe) repeats(a, b response) bool {
	if p.marks() && b.ok() && !p.isMarked(b) {
		return false
	}
	return p.alike(a, b)
}

// isReplay reports whether b, the response to a request that may not be a repeat
// of a's, is a's or says that it is a replay.
func (p *probe) isReplay(a, b response) bool {
	return p.isMarked(b) || len(p.identity) > 0 && p.alike(a, b)
}
