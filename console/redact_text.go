package console

import (
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/internal/secretname"
)

// text hides the values of secrets in a text that is not JSON: the text after a name and one
// of : = >, and the contents of an XML element with such a name.
func (r *redaction) text(text string) string {
	if !strings.ContainsAny(text, ":=><%\\&") || !r.mayHaveName(text) {
		return text
	}
	var shown strings.Builder
	from := 0
	for at := 0; at < len(text); {
		begin, end := 0, 0
		gap := separator(text[at:])
		if gap > 0 && r.endsInName(text[from:at]) {
			begin = at + gap
			end = valueEnd(text, begin)
		} else if name := element(text[at:]); name != "" && r.hasName(name) {
			begin = at + len(name) + 1
			end = elementEnd(text, begin, name)
		} else if n := r.secretField(text[at:]); n > 0 {
			begin, end = at+1, at+n
		} else {
			at += max(gap, 1)
			continue
		}
		shown.WriteString(text[from:begin] + secretname.Redacted)
		from, at = end, end
	}
	shown.WriteString(text[from:])
	return shown.String()
}

// mayHaveName reports whether a name is somewhere in a text. It is much faster than looking
// for one at each separator.
func (r *redaction) mayHaveName(text string) bool {
	for _, plain := range []string{secretname.Plain(text), secretname.Plain(unescape(text))} {
		for _, name := range r.names {
			if strings.Contains(plain, name) {
				return true
			}
		}
	}
	return false
}

// separators are the texts between a name and its value, plain and in other notations.
var separators = []string{":", "=", ">", "%3a", "%3d", `\u003a`, `\u003d`, `\u003e`, "&gt;", "&#58;", "&#61;", "&#62;"}

// separator returns the length of the separators and the white space with which a text
// begins, or 0 if it begins with no separator.
func separator(text string) int {
	n := 0
	for {
		found := 0
		if n == len(text) || strings.IndexByte(":=>%\\&", text[n]) < 0 {
			return n
		}
		for _, s := range separators {
			if len(text) >= n+len(s) && strings.EqualFold(text[n:n+len(s)], s) {
				found = len(s)
				break
			}
		}
		if found == 0 {
			return n
		}
		n += found
		for n < len(text) && (text[n] == ' ' || text[n] == '\t') {
			n++
		}
	}
}

// longestName is how much of a text before a separator is looked at, in bytes.
const longestName = 64

// endsInName reports whether a text ends in the name of a secret. A name may have several
// words and may be quoted and escaped.
func (r *redaction) endsInName(text string) bool {
	text = strings.TrimRightFunc(text, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(`"'\`+"`", c) })
	text = text[max(0, len(text)-longestName):]
	text = strings.TrimRight(index.ReplaceAllString(text, ""), `]"'`) // a field of a form may be user[password], or password[0]
	if at := strings.LastIndexAny(text, "\n,:=/?{}<>()[]"); at >= 0 {
		if strings.HasSuffix(text[:at+1], "</") {
			return false // the last tag of an element
		}
		text = text[at+1:]
	}
	if at := strings.LastIndexByte(text, '&'); at >= 0 && !strings.Contains(text[at:], ";") {
		text = text[at+1:] // a field of a form, and not an escaped character
	}
	words := strings.Fields(unescape(text))
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	name := secretname.Plain(strings.Join(words, ""))
	lastWord := len(name) - len(secretname.Plain(last))
	runs := strings.FieldsFunc(last, func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	for _, secret := range r.names {
		if len(secret) < secretname.ShortestPart {
			if len(runs) > 0 && strings.ToLower(runs[len(runs)-1]) == secret {
				return true
			}
		} else if at := strings.LastIndex(name, secret); at >= 0 && at+len(secret) > lastWord {
			return true
		}
	}
	return false
}

// index is the index of a field that is a list.
var index = regexp.MustCompile(`\[\d*\]$`)

var escapedCharacter = regexp.MustCompile(`(?:\\u00|%)[0-7][0-9A-Fa-f]`)

// unescape decodes the characters of a name that are escaped as in JSON, URLs or XML.
func unescape(name string) string {
	if strings.ContainsAny(name, `\%`) {
		name = escapedCharacter.ReplaceAllStringFunc(name, func(escaped string) string {
			code, _ := strconv.ParseUint(escaped[len(escaped)-2:], 16, 8) // matches the pattern
			return string(rune(code))
		})
	}
	return html.UnescapeString(name)
}

// valueEnd returns where the value that begins at a place of a text ends: at the end of its
// line and of the lines below that are empty or indented further. Where a value is not
// complete on its line, everything that follows is hidden.
func valueEnd(text string, begin int) int {
	line, rest, _ := strings.Cut(text[begin:], "\n")
	value := strings.TrimSpace(line)
	quotes := strings.TrimLeft(value, `\`)
	switch {
	case strings.Trim(value, `"'`+"`"+`\|>+-{[(`) == "" && rest != "":
		return len(text) // the value is below
	case strings.HasSuffix(value, "{"), strings.HasSuffix(value, "["), strings.HasSuffix(value, "("), strings.HasSuffix(value, `\`), strings.Contains(value, "<![CDATA[") && !strings.Contains(value, "]]>"):
		return len(text)
	case strings.ContainsRune("\"'`", firstRune(quotes)) && strings.Count(quotes, quotes[:1])%2 == 1:
		return len(text)
	}
	end := begin + len(line)
	indent := indentation(text[strings.LastIndexByte(text[:begin], '\n')+1:])
	for end < len(text) {
		next, _, _ := strings.Cut(text[end+1:], "\n")
		if strings.TrimSpace(next) != "" && indentation(next) <= indent {
			break
		}
		end += 1 + len(next)
	}
	return end
}

func firstRune(text string) rune {
	first, _ := utf8.DecodeRuneInString(text)
	return first
}

func indentation(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// element returns the name of the XML element with whose first tag a text begins, or "".
func element(text string) string {
	if !strings.HasPrefix(text, "<") {
		return ""
	}
	name := text[1:min(len(text), longestName)]
	if end := strings.IndexAny(name, " \t\r\n/>"); end >= 0 {
		name = name[:end]
	}
	return name
}

// emptyElement matches the beginning of an element of HTML that has its value in an attribute, and
// fieldName the attribute with the name of that value.
var (
	emptyElement = regexp.MustCompile(`^<(?i:input|meta|param)\s[^>]{0,1000}`)
	fieldName    = regexp.MustCompile(`(?i)\s(?:name|id|property)\s*=\s*("[^"]*"|'[^']*'|[^\s"']+)`)
)

// secretField returns the length of the HTML field with whose name and value a text begins, or 0
// if it begins with none, or with one that may be shown.
func (r *redaction) secretField(text string) int {
	tag := emptyElement.FindString(text)
	for _, name := range fieldName.FindAllStringSubmatch(tag, -1) {
		if r.hasName(html.UnescapeString(name[1])) {
			if end := strings.IndexByte(text, '>'); end >= 0 {
				return end
			}
			return len(text)
		}
	}
	return 0
}

// elementEnd returns where the last tag of an element begins, or the end of the text.
func elementEnd(text string, begin int, name string) int {
	if n := strings.Index(text[begin:], "</"+name); n >= 0 {
		return begin + n
	}
	return len(text)
}
