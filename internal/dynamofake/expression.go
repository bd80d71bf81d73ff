package dynamofake

import (
	"math/big"
	"strings"
	"unicode"
)

// An expression is the text of a condition or an update, with its names and values.
type expression struct {
	names  map[string]string
	values map[string]value
	tokens []string
	wrong  *failure
}

func parse(text string, names map[string]string, values map[string]value) *expression {
	e := &expression{names: names, values: values}
	for i := 0; i < len(text); {
		c := rune(text[i])
		switch {
		case unicode.IsSpace(c):
			i++
		case isWord(c):
			end := i
			for end < len(text) && isWord(rune(text[end])) {
				end++
			}
			e.tokens, i = append(e.tokens, text[i:end]), end
		case strings.HasPrefix(text[i:], "<=") || strings.HasPrefix(text[i:], ">=") || strings.HasPrefix(text[i:], "<>"):
			e.tokens, i = append(e.tokens, text[i:i+2]), i+2
		default:
			e.tokens, i = append(e.tokens, text[i:i+1]), i+1
		}
	}
	return e
}

func isWord(c rune) bool {
	return unicode.IsLetter(c) || unicode.IsDigit(c) || c == '_' || c == '#' || c == ':'
}

// next takes the next token.
func (e *expression) next() string {
	if len(e.tokens) == 0 {
		return ""
	}
	t := e.tokens[0]
	e.tokens = e.tokens[1:]
	return t
}

// accept takes a token if it is the next one.
func (e *expression) accept(want string) bool {
	if len(e.tokens) > 0 && strings.EqualFold(e.tokens[0], want) {
		e.next()
		return true
	}
	return false
}

func (e *expression) expect(want string) {
	if !e.accept(want) {
		e.refuse("a " + want + " is missing")
	}
}

func (e *expression) refuse(why string) {
	if e.wrong == nil {
		e.wrong = fail("ValidationException", "Invalid expression: "+why)
	}
}

// name takes the name of an attribute.
func (e *expression) name() string {
	t := e.next()
	if strings.HasPrefix(t, "#") {
		name, ok := e.names[t]
		if !ok {
			e.refuse("no name is given for " + t)
		}
		return name
	}
	return t
}

// operand takes the name of an attribute or of a value, and returns its value; nil: there
// is none.
func (e *expression) operand(of item) value {
	if len(e.tokens) > 0 && strings.HasPrefix(e.tokens[0], ":") {
		v, ok := e.values[e.tokens[0]]
		if !ok {
			e.refuse("no value is given for " + e.tokens[0])
		}
		e.next()
		return v
	}
	if e.accept("if_not_exists") {
		e.expect("(")
		v := of[e.name()]
		e.expect(",")
		otherwise := e.operand(of)
		e.expect(")")
		if v == nil {
			return otherwise
		}
		return v
	}
	return of[e.name()]
}

// either, both and one say whether an item meets a condition.
func (e *expression) either(of item) bool {
	met := e.both(of)
	for e.accept("OR") {
		other := e.both(of)
		met = met || other
	}
	return met
}

func (e *expression) both(of item) bool {
	met := e.one(of)
	for e.accept("AND") {
		other := e.one(of)
		met = met && other
	}
	return met
}

func (e *expression) one(of item) (met bool) {
	switch {
	case e.accept("NOT"):
		return !e.one(of)
	case e.accept("("):
		met = e.either(of)
		e.expect(")")
		return met
	case e.accept("attribute_exists"):
		e.expect("(")
		met = of[e.name()] != nil
		e.expect(")")
		return met
	case e.accept("attribute_not_exists"):
		e.expect("(")
		met = of[e.name()] == nil
		e.expect(")")
		return met
	}
	a := e.operand(of)
	operator := e.next()
	b := e.operand(of)
	same := a != nil && b != nil && a.equals(b)
	order, ordered := a.compare(b)
	switch operator {
	case "=":
		return same
	case "<>":
		return !same
	case "<":
		return ordered && order < 0
	case "<=":
		return ordered && order <= 0
	case ">":
		return ordered && order > 0
	case ">=":
		return ordered && order >= 0
	}
	e.refuse("the operator " + operator)
	return false
}

// meets reports whether an item meets a condition; "" is met by every one.
func meets(of item, text string, names map[string]string, values map[string]value) (bool, *failure) {
	if text == "" {
		return true, nil
	}
	e := parse(text, names, values)
	met := e.either(of)
	if len(e.tokens) > 0 {
		e.refuse("there is more: " + e.tokens[0])
	}
	return met, e.wrong
}

// update returns an item after an update.
func update(of item, text string, names map[string]string, values map[string]value) (item, *failure) {
	e, after := parse(text, names, values), of.clone()
	for len(e.tokens) > 0 && e.wrong == nil {
		switch {
		case e.accept("SET"):
			for more := true; more; more = e.accept(",") {
				name := e.name()
				e.expect("=")
				v := e.operand(of)
				if e.accept("+") {
					v = sum(v, e.operand(of))
				}
				if v == nil {
					e.refuse("the provided expression refers to an attribute that does not exist in the item")
				}
				after[name] = v
			}
		case e.accept("REMOVE"):
			for more := true; more; more = e.accept(",") {
				delete(after, e.name())
			}
		case e.accept("ADD"):
			for more := true; more; more = e.accept(",") {
				name := e.name()
				after[name] = sum(of[name], e.operand(of))
			}
		default:
			e.refuse("the clause " + e.next())
		}
	}
	return after, e.wrong
}

// sum adds two numbers; nil is 0.
func sum(a, b value) value {
	if a == nil {
		a = value{"N": "0"}
	}
	n := new(big.Rat).Add(a.number(), b.number())
	return value{"N": strings.TrimRight(strings.TrimRight(n.FloatString(20), "0"), ".")}
}
