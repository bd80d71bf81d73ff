package dynamofake

import (
	"encoding/base64"
	"maps"
	"math/big"
	"reflect"
)

// An item has values by their names, as JSON has them: {"S": "text"}.
type item map[string]value

type value map[string]any

// kind returns the kind of a value, and its content.
func (v value) kind() (kind string, what any) {
	for kind, what := range v {
		return kind, what
	}
	return "", nil
}

func (v value) text() string { _, what := v.kind(); s, _ := what.(string); return s }

func (v value) number() *big.Rat {
	n, ok := new(big.Rat).SetString(v.text())
	if !ok {
		return new(big.Rat)
	}
	return n
}

// equals reports whether two values are the same. Numbers may be written differently.
func (v value) equals(other value) bool {
	a, _ := v.kind()
	b, _ := other.kind()
	if a == "N" && b == "N" {
		return v.number().Cmp(other.number()) == 0
	}
	return reflect.DeepEqual(v, other)
}

// compare orders two values of one kind; not ok: they have no order.
func (v value) compare(other value) (order int, ok bool) {
	a, _ := v.kind()
	b, _ := other.kind()
	if a != b {
		return 0, false
	}
	switch a {
	case "N":
		return v.number().Cmp(other.number()), true
	case "S":
		return order3(v.text(), other.text()), true
	case "B":
		return order3(string(v.bytes()), string(other.bytes())), true
	}
	return 0, false
}

func order3(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (v value) bytes() []byte {
	b, _ := base64.StdEncoding.DecodeString(v.text())
	return b
}

// size is how many bytes a value takes, as DynamoDB counts them.
func (v value) size() int {
	switch kind, _ := v.kind(); kind {
	case "S":
		return len(v.text())
	case "B":
		return len(v.bytes())
	case "N":
		return len(v.text())/2 + 2
	}
	return 1
}

func (i item) size() (n int) {
	for name, v := range i {
		n += len(name) + v.size()
	}
	return n
}

// mostItem is how many bytes an item may have, and mostItems how many items a transaction.
const (
	mostItem  = 400 << 10
	mostItems = 100
	page      = 1 << 20
)

func (i item) clone() item { return maps.Clone(i) }
