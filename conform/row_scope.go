package conform

import (
	"fmt"
	"net/http"
)

func checkTenants(p *probe) (result, error) {
	if p.target.Other == nil {
		return unsupported("There are no credentials of a second tenant (Other, --other-header)."), nil
	}
	as := func(note string, c command) (recordedResponse, error) {
		s := p.commandRequest(c)
		s.header = p.target.header(true)
		return p.send(note, s)
	}
	own, err := as("a command of the second tenant", p.newCommand())
	if err != nil {
		return result{}, err
	}
	if !own.ok() {
		return result{}, fmt.Errorf("the second tenant's request got %v: give valid credentials (Other, --other-header)", own.response)
	}
	c := p.newCommand()
	var first, other, again recordedResponse
	if first, err = p.sendNewCommand("a command of the first tenant", c); err == nil {
		if other, err = as("the same key and body, sent by the second tenant", c); err == nil {
			again, err = p.sendCommand("the first tenant's request again", c)
		}
	}
	if err != nil {
		return result{}, err
	}
	shown := []Exchange{first.exchange, other.exchange, again.exchange}
	switch {
	case other.ok() && p.isReplay(first.response, other.response):
		return fail("One tenant got the other's response.", shown...), nil
	case !other.ok():
		return fail(fmt.Sprintf("A key that another tenant had used got %v: this reveals that the key was used, and keeps other tenants from using it.", other.response), shown...), nil
	case !p.isRepeatOf(first.response, again.response):
		return fail("After another tenant had used the same key, the first tenant no longer got its response.", shown...), nil
	}
	return pass("Two tenants used one key, and each got its own response.", shown...), nil
}

func checkOperation(p *probe) (result, error) {
	if p.target.OtherURL == "" {
		return unsupported("No other operation was given (OtherURL, --other-path)."), nil
	}
	c := p.newCommand()
	first, err := p.sendNewCommand("a command", c)
	if err != nil {
		return result{}, err
	}
	s := p.commandRequest(c)
	s.url = p.target.OtherURL
	other, err := p.send("the same key and body for another operation", s)
	if err != nil {
		return result{}, err
	}
	shown := []Exchange{first.exchange, other.exchange}
	switch {
	case p.isReplay(first.response, other.response):
		return fail("One operation got another's response, and did not run.", shown...), nil
	case other.ok():
		return pass("The same key for another operation identifies another command.", shown...), nil
	case !other.rejected():
		return fail(fmt.Sprintf("The same key for another operation got %v.", other.response), shown...), nil
	}
	if other.status != http.StatusConflict && other.status != http.StatusUnprocessableEntity {
		// The operation may reject the key, or the body.
		s = p.commandRequest(p.newCommand())
		s.url = p.target.OtherURL
		fresh, err := p.send("a command with a new key for the other operation", s)
		if err != nil {
			return result{}, err
		}
		shown = append(shown, fresh.exchange)
		if !fresh.ok() {
			return unsupported(fmt.Sprintf("The other operation got %v: give one that accepts the same body (OtherURL, --other-path).", fresh.response), shown...), nil
		}
	}
	return pass(fmt.Sprintf("The same key for another operation is rejected with %v.", other.response), shown...), nil
}

func checkSafe(p *probe) (result, error) {
	c := p.newCommand()
	first, err := p.sendNewCommand("a command", c)
	if err != nil {
		return result{}, err
	}
	s := p.commandRequest(c)
	s.method, s.body = http.MethodGet, nil
	keyed, err := p.send("a GET with the command's key", s)
	if err != nil {
		return result{}, err
	}
	s.keys = nil
	bare, err := p.send("a GET without a key", s)
	if err != nil {
		return result{}, err
	}
	shown := []Exchange{first.exchange, keyed.exchange, bare.exchange}
	switch {
	case keyed.status == first.status && string(keyed.body) == string(first.body) && string(bare.body) != string(first.body),
		p.marker != "" && keyed.header.Get(p.marker) != "":
		return fail("A GET with a used key got the command's stored response.", shown...), nil
	case keyed.status >= 500 && bare.status < 500:
		return fail(fmt.Sprintf("A GET with a key got %v.", keyed.response), shown...), nil
	case keyed.status != bare.status:
		return unsupported(fmt.Sprintf("A GET got %v with a key, and %v without one.", keyed.response, bare.response), shown...), nil
	}
	return pass("A key on a GET is ignored.", shown...), nil
}
