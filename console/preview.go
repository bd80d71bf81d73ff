package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/secretname"
	"github.com/onlyonce-go/onlyonce/internal/visible"
)

// How much of a body is shown, in bytes.
const (
	previewSize = 64 << 10
	listedSize  = 8 << 10 // of one in a list
)

// A preview is the part of a stored response that a person may see.
type preview struct {
	Header []headerLine
	Text   string // of the body
	Note   string // says which part is not shown, and why
	Size   string // of the body
}

type headerLine struct{ Name, Value string }

// preview returns the preview of a response, with at most so many bytes of the body.
func (r *redaction) preview(result onlyonce.Result, most int) preview {
	p := preview{Size: size(len(result.Body))}
	contentType := ""
	for _, name := range slices.Sorted(maps.Keys(result.Header)) {
		for _, value := range result.Header[name] {
			if strings.EqualFold(name, "Content-Type") {
				contentType = value
			}
			value = visible.Cut(value, 2048)
			if r.hasName(name) {
				value = secretname.Redacted
			}
			p.Header = append(p.Header, headerLine{show(name), show(r.value(value))})
		}
	}
	p.Text, p.Note = r.body(result.Body, contentType, most)
	return p
}

// body returns the part of a body that is shown, and a note about the rest.
func (r *redaction) body(body []byte, contentType string, most int) (text, note string) {
	if len(body) == 0 {
		return "", ""
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if strings.Contains(strings.ToLower(contentType), "json") || isDocument(string(body[:min(len(body), most)])) {
		return r.json(body, most)
	}
	shown := body
	if len(shown) > most {
		shown = visible.WholeRunes(shown[:most])
		note = fmt.Sprintf("Cut after %s.", size(len(shown)))
	}
	if !utf8.Valid(shown) || bytes.IndexByte(shown, 0) >= 0 {
		return "", "The body is not text, and is not shown."
	}
	return visible.Text(r.text(string(shown)), "\n\t"), note
}

// isDocument reports whether a text has the beginning of a JSON object or array.
func isDocument(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	return strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")
}

// value returns a string as a person may see it. It may be a JSON document of its own.
func (r *redaction) value(s string) string {
	if !isDocument(s) {
		return r.text(s)
	}
	text, note := r.json([]byte(s), len(s))
	return strings.TrimSpace(text + note)
}

// json returns JSON documents with indentation. It shows nothing from the first mistake on,
// because it could not find the values to hide there.
func (r *redaction) json(body []byte, most int) (text, note string) {
	p := jsonPrinter{body: body, in: json.NewDecoder(bytes.NewReader(body)), hide: r, most: most}
	p.in.UseNumber()
	for {
		before := p.out.Len()
		err := p.value(nil)
		switch {
		case errors.Is(err, io.EOF) && before > 0 && p.out.Len() == before:
			return visible.Text(p.out.String(), "\n"), ""
		case errors.Is(err, errCut):
			return visible.Text(p.out.String(), "\n"), fmt.Sprintf("Cut after %s.", size(p.out.Len()))
		case err != nil:
			return visible.Text(p.out.String(), "\n"), "The rest is not valid JSON, and is not shown."
		}
		p.out.WriteByte('\n')
	}
}

var errCut = errors.New("there is more than is shown")

// A jsonPrinter writes the values of a JSON document that are not hidden.
type jsonPrinter struct {
	body []byte // read by in
	in   *json.Decoder
	out  strings.Builder
	hide *redaction
	most int // bytes that are shown
}

// value writes the next value, which is at a path.
func (p *jsonPrinter) value(path []string) error {
	token, err := p.in.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		return p.group(t, path)
	case string:
		p.text(t)
	case nil:
		p.out.WriteString("null")
	default:
		fmt.Fprint(&p.out, t)
	}
	return p.full()
}

func (p *jsonPrinter) full() error {
	if p.out.Len() > p.most {
		return errCut
	}
	return nil
}

// text writes a string, or its beginning, without the secrets in it.
func (p *jsonPrinter) text(s string) {
	var quoted bytes.Buffer
	out := json.NewEncoder(&quoted)
	out.SetEscapeHTML(false)                             // the template does
	_ = out.Encode(p.hide.value(visible.Cut(s, p.most))) // of a string, never fails
	p.out.Write(bytes.TrimSuffix(quoted.Bytes(), []byte("\n")))
}

// group writes an object or an array whose first character has been read.
func (p *jsonPrinter) group(begin json.Delim, path []string) error {
	p.out.WriteString(begin.String())
	if err := p.full(); err != nil {
		return err
	}
	indent := "\n" + strings.Repeat("  ", min(len(path), maxIndent)+1)
	namesSecret := begin == '{' && p.namesSecret()
	n := 0
	for ; p.in.More(); n++ {
		if n > 0 {
			p.out.WriteByte(',')
		}
		p.out.WriteString(indent)
		step := strconv.Itoa(n)
		if begin == '{' {
			name, err := p.in.Token()
			if err != nil {
				return err
			}
			step, _ = name.(string) // a member's name is a string
			p.text(step)
			p.out.WriteString(": ")
		}
		at := append(path, step)
		hidden := namesSecret && slices.Contains(namedMembers, secretname.Plain(step)) || p.hide.hides(at, begin == '{')
		if err := p.member(at, hidden); err != nil {
			return err
		}
	}
	end, err := p.in.Token()
	if err != nil {
		return err
	}
	if n > 0 {
		p.out.WriteString(indent[:len(indent)-2])
	}
	fmt.Fprint(&p.out, end)
	return p.full()
}

// maxAhead is how many tokens of an object are looked at before it is written.
const maxAhead = 64

// namesSecret reports whether a member of the object whose first character has been read says
// that another one is a secret. The value may come before its name.
func (p *jsonPrinter) namesSecret() bool {
	in := json.NewDecoder(bytes.NewReader(p.body[p.in.InputOffset()-1:]))
	name, isName, depth := "", false, 0
	for range maxAhead {
		token, err := in.Token()
		if err != nil {
			return false
		}
		switch t := token.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
			isName = true // if it is in the object itself
		case string:
			if depth == 1 && !isName && p.hide.isNaming(name, t) {
				return true
			}
			if name = t; depth == 1 {
				isName = !isName
			}
		default:
			isName = true
		}
		if depth == 0 {
			return false
		}
	}
	return false
}

// maxIndent is the depth from which values are no longer indented further.
const maxIndent = 20

// member writes a value of an object or an array, or that it is hidden.
func (p *jsonPrinter) member(path []string, hidden bool) error {
	if !hidden {
		return p.value(path)
	}
	var value json.RawMessage
	if err := p.in.Decode(&value); err != nil {
		return err
	}
	p.out.WriteString(`"` + secretname.Redacted + `"`)
	return p.full()
}
