package proxyfile

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Size is a number of bytes. In a file it is a whole number with KiB, MiB or
// GiB, or of bytes.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads "64KiB", "1MiB" or a number of bytes.
func ParseSize(text string) (Size, error) {
	number, unit := text, Size(1)
	for _, u := range sizeUnits {
		if before, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = strings.TrimSpace(before), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || Size(n) > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is no size: write one such as 64KiB or 1MiB", text)
	}
	return Size(n) * unit, nil
}

func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Set and Type make a Size a flag.
func (s *Size) Set(text string) (err error) {
	*s, err = ParseSize(text)
	return err
}

// Type names the value in a flag's help.
func (*Size) Type() string { return "size" }

// wanted says what a setting takes.
func wanted(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Duration:
		return "a duration such as 500ms, 30s or 24h"
	case Size:
		return "a size such as 64KiB or 1MiB"
	case bool:
		return "true or false"
	case int:
		return "a whole number"
	}
	return "a text"
}

// setScalar sets v, or returns what is wrong.
func setScalar(n *yaml.Node, v reflect.Value) string {
	wrong := fmt.Sprintf("%q is not right here: write %s", n.Value, wanted(v))
	switch at := v.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(n.Value)
		if err != nil || n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			return wrong
		}
		*at = d
	case *Size:
		size, err := ParseSize(n.Value)
		if err != nil {
			return wrong
		}
		*at = size
	case *bool:
		if n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
			return wrong
		}
		*at = n.Value == "true"
	case *int:
		i, err := strconv.Atoi(n.Value)
		if err != nil || n.Tag != "!!int" {
			return wrong
		}
		*at = i
	case *string:
		return setText(n, at)
	}
	return ""
}

func setText(n *yaml.Node, at *string) string {
	switch {
	case n.Tag == "!!bool":
		return fmt.Sprintf("%s is not a text: put it into quotes if it is meant as one", n.Value)
	case n.Tag == "!!binary":
		return "!!binary is not supported: write a text"
	case strings.ContainsFunc(n.Value, func(r rune) bool { return r == 0 }):
		return "this holds a NUL character: leave it out"
	}
	*at = n.Value
	return ""
}
