package conform

import (
	"fmt"
	"strings"
)

// A keyUse says what an API did with an odd key.
type keyUse int

const (
	rejectedKey keyUse = iota // got 4xx, and nothing ran
	ignoredKey                // taken, and its repeat ran again
	usedKey                   // taken, and its repeat replayed
	brokenKey                 // anything else
)

// A trial is the outcome of a request with an unusual key.
type trial struct {
	use    keyUse
	first  seen
	detail string
	shown  []Exchange
}

// try sends a command with the given lines of the key's header, and again.
func (p *probe) try(keys ...string) (t trial, err error) {
	c := p.new()
	var again seen
	runs, err := p.counting(c, func() (err error) {
		if t.first, err = p.send("an odd key", p.raw(c.body, keys...)); err != nil || !t.first.ok() {
			return err
		}
		again, err = p.send("the same again", p.raw(c.body, keys...))
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
		t.use, t.detail = brokenKey, fmt.Sprintf("was rejected with %v, and took effect", t.first.response)
	case t.first.rejected():
		t.use, t.detail = rejectedKey, fmt.Sprintf("was rejected with %v", t.first.response)
	case !t.first.ok():
		t.use, t.detail = brokenKey, fmt.Sprintf("got %v", t.first.response)
	case runs > 1, again.ok() && !p.repeats(t.first.response, again.response):
		t.use, t.detail = ignoredKey, "was taken, but its repeat ran again"
	case !again.ok():
		t.use, t.detail = brokenKey, fmt.Sprintf("was taken, but its repeat got %v", again.response)
	default:
		t.use, t.detail = usedKey, "was taken as a key"
	}
	return t, nil
}

// merges reports whether another command with the given lines is taken for the
// one of a trial.
func (p *probe) merges(t *trial, keys ...string) (bool, error) {
	c := p.new()
	var got seen
	runs, err := p.counting(c, func() (err error) {
		got, err = p.send("another command, whose key is another", p.raw(c.body, keys...))
		return err
	})
	if err == nil && !got.ok() && !got.rejected() {
		err = fmt.Errorf("another command got %v, where a success or a rejection was expected", got.response)
	}
	t.shown = append(t.shown, got.exchange)
	return !got.ok() || runs == 0 || p.isReplay(t.first.response, got.response), err
}

func checkMissing(p *probe) (finding, error) {
	c := p.new()
	var first, again seen
	runs, err := p.counting(c, func() (err error) {
		if first, err = p.send("no key", p.raw(c.body)); err != nil || !first.ok() {
			return err
		}
		again, err = p.send("the same again, without a key", p.raw(c.body))
		return err
	})
	if err != nil {
		return finding{}, err
	}
	switch {
	case first.rejected() && runs > 0:
		return fail(fmt.Sprintf("A request without a key was rejected with %v, and took effect.", first.response), first.exchange), nil
	case first.rejected():
		return pass(fmt.Sprintf("A key is required: without one, the response is %v.", first.response), first.exchange), nil
	case !first.ok():
		return fail(fmt.Sprintf("Without a key, the response is %v.", first.response), first.exchange), nil
	case runs >= 0 && runs < 2, runs < 0 && p.isReplay(first.response, again.response):
		return fail("Two requests without a key ran once: all that have none share one.", first.exchange, again.exchange), nil
	}
	return unsupported("A key is optional here: without one, every request runs.", first.exchange), nil
}

func checkEmpty(p *probe) (finding, error) {
	open := ""
	var shown []Exchange
	for _, key := range []string{"", `""`} {
		t, err := p.try(key)
		if err != nil {
			return finding{}, err
		}
		shown = append(shown, t.shown...)
		switch t.use {
		case usedKey:
			return fail(fmt.Sprintf("The empty key (%s) was accepted: all clients that send an empty key by mistake share it.", orNothing(key)), t.shown...), nil
		case brokenKey:
			return fail(fmt.Sprintf("The empty key (%s) %s.", orNothing(key), t.detail), t.shown...), nil
		case ignoredKey:
			open = fmt.Sprintf("The empty key (%s) counts as none, and a key is optional here.", orNothing(key))
		}
	}
	if open == "" {
		return pass("An empty key is rejected, in quotes and without.", shown...), nil
	}
	without, err := p.send("no key", p.raw(p.new().body))
	if err != nil {
		return finding{}, err
	}
	if without.rejected() {
		return fail("A key is required, but a request with an empty one runs.", append(shown, without.exchange)...), nil
	}
	return unsupported(open, shown...), nil
}

func orNothing(key string) string {
	if key == "" {
		return "no character at all"
	}
	return key
}

// checkMalformed sends values that are not keys in any published form. If a server accepts
// one, all its bytes must count.
func checkMalformed(p *probe) (finding, error) {
	open := ""
	var shown []Exchange
	for _, odd := range []struct{ what, before, after, otherwise string }{
		{"a key with its closing quote missing", `"`, "", ""},
		{"a key with a character that is not ASCII", "", "\u00e4", "\u00f6"},
		{"a key with a control character", "", "\x01", "\x02"},
		{"a key with a blank in it", "", " x", " y"},
	} {
		key := odd.before + newKey()
		t, err := p.try(key + odd.after)
		if err != nil {
			return finding{}, err
		}
		if t.use == usedKey && odd.otherwise != "" {
			if merged, err := p.merges(&t, key+odd.otherwise); err != nil {
				return finding{}, err
			} else if merged {
				return fail("Of "+odd.what+", only a part counts: another key was taken for it.", t.shown...), nil
			}
		}
		shown = append(shown, t.shown...)
		switch t.use {
		case brokenKey, ignoredKey:
			return fail(strings.ToUpper(odd.what[:1])+odd.what[1:]+" "+t.detail+".", t.shown...), nil
		case usedKey:
			open = strings.ToUpper(odd.what[:1]) + odd.what[1:] + " " + t.detail + ": keys have no fixed form here."
		}
	}
	if open != "" {
		return unsupported(open, shown...), nil
	}
	return pass("Keys that are no keys are rejected.", shown...), nil
}

func checkRepeated(p *probe) (finding, error) {
	one, two := p.form(newKey()), p.form(newKey())
	t, err := p.try(one, two)
	if err != nil {
		return finding{}, err
	}
	switch t.use {
	case rejectedKey:
		return pass("A request with two keys "+t.detail+".", t.shown...), nil
	case ignoredKey, brokenKey:
		return fail("A request with two keys "+t.detail+".", t.shown...), nil
	}
	for i, key := range []string{one, two} {
		merged, err := p.merges(&t, key)
		if err != nil {
			return finding{}, err
		}
		if merged {
			return fail(fmt.Sprintf("Of two keys in one request, the %s counts, and a proxy in between may use the other.", [...]string{"first", "second"}[i]), t.shown...), nil
		}
	}
	return unsupported("Two lines of the header are joined to one key.", t.shown...), nil
}

// overLong are lengths of keys. The first is longer than any key, and shorter than what
// servers take as a header line. Where it is rejected, a shorter one may be accepted, and
// then cut.
var overLong = [...]int{5000, 254, 64}

func checkOverLong(p *probe) (finding, error) {
	var rejected finding
	for i, length := range overLong {
		key := randomHex(length / 2)
		t, err := p.try(p.form(key))
		if err != nil {
			return finding{}, err
		}
		detail := fmt.Sprintf("A key of %d characters %s.", length, t.detail)
		switch t.use {
		case rejectedKey:
			if i == 0 {
				rejected = pass(detail, t.shown...)
			}
			continue
		case ignoredKey, brokenKey:
			return fail(detail, t.shown...), nil
		}
		other := "0"
		if key[length-1] == '0' {
			other = "1"
		}
		merged, err := p.merges(&t, p.form(key[:length-1]+other))
		switch {
		case err != nil:
			return finding{}, err
		case merged:
			return fail(fmt.Sprintf("Of a key of %d characters, only a part counts: another one was taken for it.", length), t.shown...), nil
		case i > 0:
			return pass(fmt.Sprintf("%s One of %d characters counts with all of them.", rejected.detail, length), rejected.exchanges...), nil
		}
		return pass(fmt.Sprintf("A key of %d characters counts with all of them.", length), t.shown...), nil
	}
	return rejected, nil
}

func checkForms(p *probe) (finding, error) {
	c := p.new()
	var got [3]seen
	runs, err := p.counting(c, func() (err error) {
		for i, key := range []string{c.key, `"` + c.key + `"`, "  " + p.form(c.key) + " \t"} {
			if got[i], err = p.send([...]string{"a bare key", "the same key in quotes", "the same key, with blanks around it"}[i], p.raw(c.body, key)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return finding{}, err
	}
	bare, quoted, blanks := got[0], got[1], got[2]
	shown := []Exchange{bare.exchange, quoted.exchange, blanks.exchange}
	usual := bare
	if p.quoted {
		usual = quoted
	}
	switch {
	case !usual.ok():
		return finding{}, fmt.Errorf("a command with a new key got %v, where a success was expected", usual.response)
	case blanks.ok() && !p.repeats(usual.response, blanks.response):
		return fail("Blanks around a key make another key of it.", shown...), nil
	case bare.rejected() && runs < 2:
		return unsupported(fmt.Sprintf("Only keys in quotes are taken; a bare one was rejected with %v.", bare.response), shown...), nil
	case quoted.rejected() && runs < 2:
		return unsupported(fmt.Sprintf("Only bare keys are taken; one in quotes, which is the draft's form, was rejected with %v.", quoted.response), shown...), nil
	case !bare.ok() || !quoted.ok():
		return fail(fmt.Sprintf("A bare key got %v, and the same in quotes %v.", bare.response, quoted.response), shown...), nil
	case runs > 1 || !p.repeats(bare.response, quoted.response):
		return fail("A key and the same key in quotes are two: a client that changes its library runs its command twice.", shown...), nil
	}
	return pass("A key is the same with and without quotes.", shown...), nil
}

// checkCase uses keys that are not UUIDs, whose case has no meaning.
func checkCase(p *probe) (finding, error) {
	letters := func() string {
		return "case-" + strings.Map(func(r rune) rune { return 'g' + (r|0x20)%16 }, randomHex(12))
	}
	key := letters()
	t, err := p.try(p.form(key))
	if err != nil {
		return finding{}, err
	}
	if t.use != usedKey {
		return unsupported("A key that is no UUID "+t.detail+".", t.shown...), nil
	}
	capitals, err := p.try(p.form(strings.ToUpper(letters())))
	if err != nil {
		return finding{}, err
	}
	if capitals.use != usedKey {
		return unsupported("A key in capital letters "+capitals.detail+".", capitals.shown...), nil
	}
	merged, err := p.merges(&t, p.form(strings.ToUpper(key)))
	if err != nil {
		return finding{}, err
	}
	if merged {
		return fail("A key in capital letters was taken for the same key in small ones.", t.shown...), nil
	}
	return pass("A key in capital letters is another than in small ones.", t.shown...), nil
}
