package conform

import (
	"fmt"
	"strings"
)

// A keyHandling says how an API handled an unusual key.
type keyHandling int

const (
	keyRejected keyHandling = iota // the response was 4xx, and nothing ran
	keyIgnored                     // the request was accepted, and its repeat ran again
	keyUsed                        // the request was accepted, and its repeat was replayed
	keyBroken                      // anything else
)

// A keyTrial is the outcome of a request with an unusual key.
type keyTrial struct {
	command  command // its key is not the one that was sent
	handling keyHandling
	first    recordedResponse
	detail   string
	shown    []Exchange
}

// tryKey sends a command with the given lines of the key's header, and repeats it if it
// succeeds.
func (p *probe) tryKey(keys ...string) (t keyTrial, err error) {
	c := p.newCommand()
	t.command = c
	var again recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		if t.first, err = p.send("an unusual key", p.rawRequest(c.body, keys...)); err != nil || !t.first.ok() {
			return err
		}
		again, err = p.send("the same again", p.rawRequest(c.body, keys...))
		return err
	})
	if err != nil {
		return t, err
	}
	t.shown = []Exchange{t.first.exchange}
	if t.first.ok() {
		t.shown = append(t.shown, again.exchange)
	}
	switch {
	case t.first.rejected() && runs > 0:
		t.handling, t.detail = keyBroken, fmt.Sprintf("was rejected with %v, and took effect", t.first.response)
	case t.first.rejected():
		t.handling, t.detail = keyRejected, fmt.Sprintf("was rejected with %v", t.first.response)
	case !t.first.ok():
		t.handling, t.detail = keyBroken, fmt.Sprintf("got %v", t.first.response)
	case runs > 1, again.ok() && !p.isRepeatOf(t.first.response, again.response):
		t.handling, t.detail = keyIgnored, "was accepted, but its repeat ran again"
	case !again.ok():
		t.handling, t.detail = keyBroken, fmt.Sprintf("was accepted, but its repeat got %v", again.response)
	default:
		t.handling, t.detail = keyUsed, "was accepted as a key"
	}
	return t, nil
}

// sharesRecord reports whether another command with the given lines of the key's header
// is treated as a repeat of the trial's command.
func (p *probe) sharesRecord(t *keyTrial, keys ...string) (bool, error) {
	byBody, err := p.recordsByBody()
	if err != nil {
		return false, err
	}
	note, c := "another command with a different key", p.newCommand()
	if byBody { // another body would hide that two keys share a record
		note, c = "the same command with a different key", t.command
	}
	var got recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		got, err = p.send(note, p.rawRequest(c.body, keys...))
		return err
	})
	if err == nil && !got.ok() && !got.rejected() {
		err = fmt.Errorf("another command got %v, where a success or a rejection was expected", got.response)
	}
	t.shown = append(t.shown, got.exchange)
	return !got.ok() || runs == 0 || p.isReplay(t.first.response, got.response), err
}

// recordsByBody reports whether a used key with a different body identifies another command.
func (p *probe) recordsByBody() (bool, error) {
	if p.byBody != nil {
		return *p.byBody, nil
	}
	c := p.newCommand()
	c.key = p.command.key
	var got recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		got, err = p.sendCommand("a different body under a used key", c)
		return err
	})
	if err != nil {
		return false, err
	}
	byBody := got.ok() && runs != 0 && !p.isReplay(p.first, got.response)
	p.byBody = &byBody
	return byBody, nil
}

func checkMissing(p *probe) (result, error) {
	c := p.newCommand()
	var first, again recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		if first, err = p.send("no key", p.rawRequest(c.body)); err != nil || !first.ok() {
			return err
		}
		again, err = p.send("the same again, without a key", p.rawRequest(c.body))
		return err
	})
	if err != nil {
		return result{}, err
	}
	switch {
	case first.rejected() && runs > 0:
		return fail(fmt.Sprintf("A request without a key was rejected with %v, and took effect.", first.response), first.exchange), nil
	case first.rejected():
		return pass(fmt.Sprintf("A key is required: without one, the response is %v.", first.response), first.exchange), nil
	case !first.ok():
		return fail(fmt.Sprintf("Without a key, the response is %v.", first.response), first.exchange), nil
	case runs >= 0 && runs < 2, runs < 0 && p.isReplay(first.response, again.response):
		return fail("Two requests without a key ran once: requests without a key share one.", first.exchange, again.exchange), nil
	}
	return unsupported("A key is optional here: without one, every request runs.", first.exchange), nil
}

func checkEmpty(p *probe) (result, error) {
	open := ""
	var shown []Exchange
	for _, key := range []string{"", `""`} {
		t, err := p.tryKey(key)
		if err != nil {
			return result{}, err
		}
		shown = append(shown, t.shown...)
		switch t.handling {
		case keyUsed:
			return fail(fmt.Sprintf("The empty key (%s) was accepted: all clients that send an empty key by mistake share it.", describeKey(key)), t.shown...), nil
		case keyBroken:
			return fail(fmt.Sprintf("The empty key (%s) %s.", describeKey(key), t.detail), t.shown...), nil
		case keyIgnored:
			open = fmt.Sprintf("The empty key (%s) is treated as no key, and a key is optional here.", describeKey(key))
		}
	}
	if open == "" {
		return pass("An empty key is rejected, with and without quotes.", shown...), nil
	}
	without, err := p.send("no key", p.rawRequest(p.newCommand().body))
	if err != nil {
		return result{}, err
	}
	if without.rejected() {
		return fail("A key is required, but a request with an empty key runs.", append(shown, without.exchange)...), nil
	}
	return unsupported(open, shown...), nil
}

func describeKey(key string) string {
	if key == "" {
		return "an empty header value"
	}
	return key
}

// checkMalformed sends values that are not keys in any published form. If a server accepts
// one, all its bytes must count.
func checkMalformed(p *probe) (result, error) {
	open := ""
	var shown []Exchange
	for _, odd := range []struct{ what, before, after, otherwise string }{
		{"a key with its closing quote missing", `"`, "", ""},
		{"a key with a character that is not ASCII", "", "\u00e4", "\u00f6"},
		{"a key with a control character", "", "\x01", "\x02"},
		{"a key with a blank in it", "", " x", " y"},
	} {
		key := odd.before + newKey()
		t, err := p.tryKey(key + odd.after)
		if err != nil {
			return result{}, err
		}
		if t.handling == keyUsed && odd.otherwise != "" {
			if merged, err := p.sharesRecord(&t, key+odd.otherwise); err != nil {
				return result{}, err
			} else if merged {
				return fail("Only a part of "+odd.what+" is compared: a different key was treated as the same.", t.shown...), nil
			}
		}
		shown = append(shown, t.shown...)
		switch t.handling {
		case keyBroken, keyIgnored:
			return fail(strings.ToUpper(odd.what[:1])+odd.what[1:]+" "+t.detail+".", t.shown...), nil
		case keyUsed:
			open = strings.ToUpper(odd.what[:1]) + odd.what[1:] + " " + t.detail + ": the API does not restrict the characters of keys."
		}
	}
	if open != "" {
		return unsupported(open, shown...), nil
	}
	return pass("Malformed keys are rejected.", shown...), nil
}

func checkRepeated(p *probe) (result, error) {
	one, two := p.formatKey(newKey()), p.formatKey(newKey())
	t, err := p.tryKey(one, two)
	if err != nil {
		return result{}, err
	}
	switch t.handling {
	case keyRejected:
		return pass("A request with two keys "+t.detail+".", t.shown...), nil
	case keyIgnored, keyBroken:
		return fail("A request with two keys "+t.detail+".", t.shown...), nil
	}
	for i, key := range []string{one, two} {
		merged, err := p.sharesRecord(&t, key)
		if err != nil {
			return result{}, err
		}
		if merged {
			return fail(fmt.Sprintf("Of two keys in one request, the API uses the %s, and a proxy in between may use the other.", [...]string{"first", "second"}[i]), t.shown...), nil
		}
	}
	return unsupported("The API joins two lines of the header into one key.", t.shown...), nil
}

// longKeyLengths are the lengths of the keys that checkOverLong sends. The first is longer
// than any published limit, but shorter than servers' limits for a header line. A server
// that rejects it may accept a shorter one and truncate it.
var longKeyLengths = [...]int{5000, 254, 64}

func checkOverLong(p *probe) (result, error) {
	var rejected result
	for i, length := range longKeyLengths {
		key := randomHex(length / 2)
		t, err := p.tryKey(p.formatKey(key))
		if err != nil {
			return result{}, err
		}
		detail := fmt.Sprintf("A key of %d characters %s.", length, t.detail)
		switch t.handling {
		case keyRejected:
			if i == 0 {
				rejected = pass(detail, t.shown...)
			}
			continue
		case keyIgnored, keyBroken:
			return fail(detail, t.shown...), nil
		}
		other := "0"
		if key[length-1] == '0' {
			other = "1"
		}
		merged, err := p.sharesRecord(&t, p.formatKey(key[:length-1]+other))
		switch {
		case err != nil:
			return result{}, err
		case merged:
			return fail(fmt.Sprintf("Only a part of a key of %d characters is compared: a different key was treated as the same.", length), t.shown...), nil
		case i > 0:
			return pass(fmt.Sprintf("%s Of a key of %d characters, all are compared.", rejected.detail, length), rejected.exchanges...), nil
		}
		return pass(fmt.Sprintf("Of a key of %d characters, all are compared.", length), t.shown...), nil
	}
	return rejected, nil
}

func checkForms(p *probe) (result, error) {
	c := p.newCommand()
	var got [3]recordedResponse
	runs, err := p.countRuns(c, func() (err error) {
		for i, key := range []string{c.key, `"` + c.key + `"`, "  " + p.formatKey(c.key) + " \t"} {
			if got[i], err = p.send([...]string{"a bare key", "the same key in quotes", "the same key with spaces around it"}[i], p.rawRequest(c.body, key)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	bare, quoted, blanks := got[0], got[1], got[2]
	shown := []Exchange{bare.exchange, quoted.exchange, blanks.exchange}
	usual := bare
	if p.quoteKeys {
		usual = quoted
	}
	switch {
	case !usual.ok():
		return result{}, fmt.Errorf("a command with a new key got %v, where a success was expected", usual.response)
	case blanks.ok() && !p.isRepeatOf(usual.response, blanks.response):
		return fail("A key with spaces around it is treated as a different key.", shown...), nil
	case bare.rejected() && runs < 2:
		return unsupported(fmt.Sprintf("Only keys in quotes are accepted; a bare key was rejected with %v.", bare.response), shown...), nil
	case quoted.rejected() && runs < 2:
		return unsupported(fmt.Sprintf("Only bare keys are accepted; a key in quotes, which is the draft's form, was rejected with %v.", quoted.response), shown...), nil
	case !bare.ok() || !quoted.ok():
		return fail(fmt.Sprintf("A bare key got %v, and the same key in quotes got %v.", bare.response, quoted.response), shown...), nil
	case runs > 1 || !p.isRepeatOf(bare.response, quoted.response):
		return fail("A bare key and the same key in quotes are treated as two keys: a client that changes its library runs its command twice.", shown...), nil
	}
	return pass("A key is the same with and without quotes.", shown...), nil
}

// checkCase uses keys that are not UUIDs, because case has no meaning in a UUID.
func checkCase(p *probe) (result, error) {
	letters := func() string {
		return "case-" + strings.Map(func(r rune) rune { return 'g' + (r|0x20)%16 }, randomHex(12))
	}
	key := letters()
	t, err := p.tryKey(p.formatKey(key))
	if err != nil {
		return result{}, err
	}
	if t.handling != keyUsed {
		return unsupported("A key that is not a UUID "+t.detail+".", t.shown...), nil
	}
	capitals, err := p.tryKey(p.formatKey(strings.ToUpper(letters())))
	if err != nil {
		return result{}, err
	}
	if capitals.handling != keyUsed {
		return unsupported("A key in upper case "+capitals.detail+".", capitals.shown...), nil
	}
	merged, err := p.sharesRecord(&t, p.formatKey(strings.ToUpper(key)))
	if err != nil {
		return result{}, err
	}
	if merged {
		return fail("A key in upper case was treated as the same key in lower case.", t.shown...), nil
	}
	return pass("Keys that differ only in case are treated as different keys.", t.shown...), nil
}
