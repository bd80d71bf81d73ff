package conform

import (
	"fmt"
	"net/http"
	"time"
)

// checkDisconnect closes the connection while a request runs, and as soon as it was sent.
func checkDisconnect(p *probe) (result, error) {
	var shown []Exchange
	for _, after := range p.delays() {
		c := p.newCommand()
		found, err := p.disconnectAndRetry(c, after, p.commandRequest(c), len(c.body))
		if err != nil || found.verdict == Fail {
			return found, err
		}
		shown = found.exchanges
	}
	detail := "A request whose client disconnected got its response when it was retried"
	if p.perRun == 0 {
		found := pass(detail+".", shown...)
		found.caveat = "Only a count of effects can show whether it ran once (CountURL, --count-url)."
		return found, nil
	}
	return pass(detail+", and took effect once.", shown...), nil
}

func checkCutOff(p *probe) (result, error) {
	c := p.newCommand()
	if len(c.body) < 2 {
		return unsupported("There is no body that can be truncated."), nil
	}
	found, err := p.disconnectAndRetry(c, 0, p.commandRequest(c), len(c.body)/2)
	if err != nil || found.verdict == Fail {
		return found, err
	}
	return pass("After half of a request was sent, the complete request ran as a new one.", found.exchanges...), nil
}

// disconnectAndRetry sends a request with the first sent bytes of its body, closes the
// connection after a delay, retries until it succeeds, and repeats the request once more.
func (p *probe) disconnectAndRetry(c command, after time.Duration, s request, sent int) (result, error) {
	var gone *call
	var retry, again recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		if gone, err = p.client.open(p.ctx, s); err != nil {
			return err
		}
		gone.write(len(c.body) - sent)
		err = p.sleep(after)
		gone.close()
		if err != nil {
			return err
		}
		if retry, err = p.retryUntilSuccess("the same request again, on another connection", c); err != nil {
			return err
		}
		if again, err = p.sendCommand("the same request once more", c); err != nil {
			return err
		}
		return p.sleep(p.delays()[0] + 50*time.Millisecond) // an effect may come late
	})
	if err != nil {
		return result{}, err
	}
	shown := []Exchange{gone.exchange(fmt.Sprintf("sent up to byte %d of the body, then the connection was closed", sent), response{}), retry.exchange, again.exchange}
	switch {
	case !retry.ok():
		return fail(fmt.Sprintf("After the client had disconnected, its retries still got %v.", retry.response), shown...), nil
	case runs > 1:
		return fail("After the client had disconnected, its retry took effect again.", shown...), nil
	case !p.isRepeatOf(retry.response, again.response):
		return fail("After the client had disconnected, two retries got different responses.", shown...), nil
	}
	return pass("", shown...), nil
}

// checkError sends a request that is rejected for its body, twice.
func checkError(p *probe) (result, error) {
	if p.target.BadBody == nil {
		return unsupported("There is no body that the API rejects: give one (BadBody, --bad-body)."), nil
	}
	s := p.rawRequest(p.target.BadBody, p.formatKey(newKey()))
	var first, again recordedResponse
	runs, err := p.countRuns(p.newCommand(), func() (err error) {
		if first, err = p.send("a body that the API rejects", s); err == nil && !first.ok() {
			again, err = p.send("the same again", s)
		}
		return err
	})
	switch {
	case err != nil:
		return result{}, err
	case first.ok():
		return unsupported("The body that should have been rejected was accepted: give another one (BadBody, --bad-body).", first.exchange), nil
	case runs > 1:
		return fail(fmt.Sprintf("A request that got %v took effect, and so did its repeat, which got %v.", first.response, again.response), first.exchange, again.exchange), nil
	case first.status == 0:
		return fail(fmt.Sprintf("A body that should have been rejected got %v.", first.response), first.exchange, again.exchange), nil
	case again.status == first.status:
		return pass(fmt.Sprintf("A request that got %v got it again.", first.response), first.exchange, again.exchange), nil
	case again.status == http.StatusConflict || again.busy():
		return fail(fmt.Sprintf("A request that got %v then got %v, as if it were still running.", first.response, again.response), first.exchange, again.exchange), nil
	case first.status/100 == 5:
		return pass(fmt.Sprintf("A request that failed with %v ran again, and got %v.", first.response, again.response), first.exchange, again.exchange), nil
	}
	return fail(fmt.Sprintf("A request that got %v then got %v.", first.response, again.response), first.exchange, again.exchange), nil
}
