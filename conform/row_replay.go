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
		return fail(fmt.Sprintf("The first request got %v, and its repeat %v.", first, repeat), shown...), nil
	case p.repeatRuns > 0:
		return fail("The repeat took effect again.", shown...), nil
	case !p.sees && len(changed) == 0:
		return unsupported(p.missing(seesRuns), shown...), nil
	case !p.replays:
		return fail("The repeat's response differed in "+strings.Join(changed, ", ")+", as if it had run again.", shown...), nil
	case len(changed) > 0:
		return fail("It ran once, but its repeat's response differed in "+strings.Join(changed, ", ")+".", shown...), nil
	case p.unit > 0:
		return pass("The repeat got the same response, and took no effect.", shown...), nil
	}
	return pass("The repeat got the same response, and another run did not.", shown...), nil
}

func checkMarker(p *probe) (finding, error) {
	mark := p.first.mark()
	if mark == "" {
		mark = p.second.mark()
	}
	switch {
	case mark != "":
		return fail(fmt.Sprintf("%s is on the response to a request that was the first with its key.", mark), p.shown...), nil
	case p.marker == "":
		return unsupported("No header says which response is a replay.", p.shown...), nil
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
			return fail(fmt.Sprintf("The cookie %q of the first response was given again, value and all.", name), p.shown...), nil
		}
	}
	if own == 0 {
		return unsupported("The API sets no cookie that is specific to one client.", p.shown...), nil
	}
	return pass("The first response's cookie is not in the replay.", p.shown...), nil
}

func cookies(a response) map[string]string {
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
		return fail(fmt.Sprintf("A different body took effect, and got %v.", different.response), shown...), nil
	case different.ok() && (runs == 0 || p.isReplay(first.response, different.response)):
		return fail("A different body got the first one's response: its command is lost, and its client thinks it is done.", shown...), nil
	case different.ok():
		return fail(fmt.Sprintf("A different body got %v instead of being rejected.", different.response), shown...), nil
	case !different.rejected():
		return fail(fmt.Sprintf("A different body got %v instead of being rejected with 422.", different.response), shown...), nil
	}
	detail := fmt.Sprintf("A different body was rejected with %v", different.response)
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
	case runs > 0 || !p.repeats(first.response, again.response):
		return fail(detail+", but after that the first body no longer got its response.", shown...), nil
	}
	return pass(detail+", and the first body still got its response.", shown...), nil
}
