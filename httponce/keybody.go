package httponce

import (
	"unicode"
	"unicode/utf8"
)

// keyInBody finds the key in the body, if there is one, and puts it where the
// handler looks for it.
func (l *layer) keyInBody(c *call) *Problem {
	key, err := l.cfg.KeyInBody(c.scratch.body)
	given := c.request.ID.Key
	wrong := ""
	switch {
	case err != nil:
		wrong = sentence(err)
	case key == "" && given == "" && l.cfg.Required:
		p := keyMissing
		return &p
	case key == "" || key == given:
		return nil
	case given != "":
		wrong = "The key in the header is not that in the body."
	default:
		wrong = l.keys.judge(key)
	}
	if wrong != "" {
		p := invalidKey(wrong)
		p.Err = err
		return &p
	}
	c.request.ID.Key = key
	r := *c.r
	r.Header = r.Header.Clone()
	r.Header[l.cfg.Header] = []string{quote(key)}
	c.r = &r
	return nil
}

// sentence writes an error's text as a sentence.
func sentence(err error) string {
	text := err.Error()
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}
