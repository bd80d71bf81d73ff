package conform

import (
	"fmt"
	"net/http"
	"strings"
)

func checkReplay(p *probe) (result, error) {
	first, repeat, shown := p.first, p.repeat, p.firstExchanges
	changed := differences(first, repeat)
	switch {
	case !repeat.ok():
		return fail(fmt.Sprintf("The first request got %v, and its repeat got %v.", first, repeat), shown...), nil
	case p.repeatRuns > 0:
		return fail("The repeat took effect again.", shown...), nil
	case !p.detectsRuns && len(changed) == 0:
		return unsupported(p.unmet(needsRunDetection), shown...), nil
	case !p.replays:
		return fail("The repeat's response differed in "+strings.Join(changed, ", ")+": the repeat probably ran again.", shown...), nil
	case len(changed) > 0:
		return fail("The command ran once, but the repeat's response differed in "+strings.Join(changed, ", ")+".", shown...), nil
	case p.perRun > 0:
		return pass("The repeat got the same response, and had no effect.", shown...), nil
	}
	return pass("The repeat got the same response, and a run under another key got a different one.", shown...), nil
}

func checkMarker(p *probe) (result, error) {
	mark := p.first.replayHeader()
	if mark == "" {
		mark = p.second.replayHeader()
	}
	switch {
	case mark != "":
		return fail(fmt.Sprintf("%s is on the response to the first request with a key.", mark), p.firstExchanges...), nil
	case p.marker == "":
		return unsupported("No header says which response is a replay.", p.firstExchanges...), nil
	}
	return pass(fmt.Sprintf("%s: %s is on the replay only.", p.marker, p.repeat.header.Get(p.marker)), p.firstExchanges...), nil
}

// checkCookie treats a cookie as specific to the first client if the response of another
// run has a different value for it.
func checkCookie(p *probe) (result, error) {
	mine, others, again := cookies(p.first), cookies(p.second), cookies(p.repeat)
	own := 0
	for name, value := range mine {
		if value == "" || others[name] == value {
			continue
		}
		own++
		if again[name] == value {
			return fail(fmt.Sprintf("The replay sets the cookie %q with the value of the first response.", name), p.firstExchanges...), nil
		}
	}
	if own == 0 {
		return unsupported("The API sets no cookie that is specific to one client.", p.firstExchanges...), nil
	}
	return pass("The first response's cookie is not in the replay.", p.firstExchanges...), nil
}

func cookies(a response) map[string]string {
	set := map[string]string{}
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		set[c.Name] = c.Value
	}
	return set
}

func checkMismatch(p *probe) (result, error) {
	c, other := p.newCommand(), p.newCommand()
	first, err := p.sendNewCommand("a command", c)
	if err != nil {
		return result{}, err
	}
	other.key = c.key
	var different, again recordedResponse
	runs, err := p.countRuns(other, func() (err error) {
		different, err = p.sendCommand("a different body under the same key", other)
		return err
	})
	if err != nil {
		return result{}, err
	}
	shown := []Exchange{first.exchange, different.exchange}
	switch {
	case runs > 0:
		return fail(fmt.Sprintf("A different body took effect, and got %v.", different.response), shown...), nil
	case different.ok() && (runs == 0 || p.isReplay(first.response, different.response)):
		return fail("A different body got the first one's response: its command is lost, and its client believes that it ran.", shown...), nil
	case different.ok():
		return fail(fmt.Sprintf("A different body got %v instead of being rejected.", different.response), shown...), nil
	case !different.rejected():
		return fail(fmt.Sprintf("A different body got %v instead of being rejected with 422.", different.response), shown...), nil
	}
	detail := fmt.Sprintf("A different body was rejected with %v", different.response)
	if !p.replays {
		return pass(detail+".", shown...), nil
	}
	runs, err = p.countRuns(c, func() (err error) {
		again, err = p.sendCommand("the first request again", c)
		return err
	})
	shown = append(shown, again.exchange)
	switch {
	case err != nil:
		return result{}, err
	case runs > 0 || !p.isRepeatOf(first.response, again.response):
		return fail(detail+", but then a repeat of the first request no longer got its response.", shown...), nil
	}
	return pass(detail+", and a repeat of the first request still got its response.", shown...), nil
}
