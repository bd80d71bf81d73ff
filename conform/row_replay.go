package conform

import (
	"fmt"
	"net/http"
	"strings"
)

func checkReplay(p *probe) (finding, error) {
	first, repeat, shown := p.first, p.repeat, p.shown
	changed := differences(first, repeat)
	switch {
	case !repeat.ok():
		return fail(fmt.Sprintf("The first request was answered %v, and its repeat %v.", first, repeat), shown...), nil
	case p.repeatRuns > 0:
		return fail("The repeat took effect again.", shown...), nil
	case !p.sees && len(changed) == 0:
		return unsupported(p.missing(sight), shown...), nil
	case !p.replays:
		return fail("The repeat was answered otherwise in "+strings.Join(changed, ", ")+", as if it had run again.", shown...), nil
	case len(changed) > 0:
		return fail("It ran once, but its repeat was answered otherwise in "+strings.Join(changed, ", ")+".", shown...), nil
	case p.unit > 0:
		return pass("The repeat was answered the same, and took no effect.", shown...), nil
	}
	return pass("The repeat was answered the same, and another run was not.", shown...), nil
}

func checkMarker(p *probe) (finding, error) {
	mark := p.first.mark()
	if mark == "" {
		mark = p.second.mark()
	}
	switch {
	case mark != "":
		return fail(fmt.Sprintf("%s is on the answer to a request that was the first with its key.", mark), p.shown...), nil
	case p.marker == "":
		return unsupported("No header says which answer is a replay.", p.shown...), nil
	}
	return pass(fmt.Sprintf("%s: %s is on the replay only.", p.marker, p.repeat.header.Get(p.marker)), p.shown...), nil
}

// checkCookie takes a cookie for the first client's own if another run got
// another one.
func checkCookie(p *probe) (finding, error) {
	mine, others, again := cookies(p.first), cookies(p.second), cookies(p.repeat)
	own := 0
	for name, value := range mine {
		if value == "" || others[name] == value {
			continue
		}
		own++
		if again[name] == value {
			return fail(fmt.Sprintf("The cookie %q of the first answer was given again, value and all.", name), p.shown...), nil
		}
	}
	if own == 0 {
		return unsupported("No cookie is set that is one client's own.", p.shown...), nil
	}
	return pass("The first answer's cookie is not in the replay.", p.shown...), nil
}

func cookies(a answer) map[string]string {
	set := map[string]string{}
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		set[c.Name] = c.Value
	}
	return set
}

func checkMismatch(p *probe) (finding, error) {
	c, other := p.new(), p.new()
	first, err := p.start("a command", c)
	if err != nil {
		return finding{}, err
	}
	other.key = c.key
	var different, again seen
	runs, err := p.counting(other, func() (err error) {
		different, err = p.ask("a different body under the same key", other)
		return err
	})
	if err != nil {
		return finding{}, err
	}
	shown := []Exchange{first.exchange, different.exchange}
	switch {
	case runs > 0:
		return fail(fmt.Sprintf("A different body took effect, and was answered %v.", different.answer), shown...), nil
	case different.ok() && (runs == 0 || p.isReplay(first.answer, different.answer)):
		return fail("A different body got the first one's answer: its command is lost, and its client thinks it is done.", shown...), nil
	case different.ok():
		return fail(fmt.Sprintf("A different body was answered %v instead of being refused.", different.answer), shown...), nil
	case !different.refused():
		return fail(fmt.Sprintf("A different body was answered %v instead of being refused with 422.", different.answer), shown...), nil
	}
	detail := fmt.Sprintf("A different body was refused with %v", different.answer)
	if !p.replays {
		return pass(detail+".", shown...), nil
	}
	runs, err = p.counting(c, func() (err error) {
		again, err = p.ask("the first body again", c)
		return err
	})
	shown = append(shown, again.exchange)
	switch {
	case err != nil:
		return finding{}, err
	case runs > 0 || !p.alike(first.answer, again.answer):
		return fail(detail+", but after that the first body no longer got its answer.", shown...), nil
	}
	return pass(detail+", and the first body still got its answer.", shown...), nil
}
