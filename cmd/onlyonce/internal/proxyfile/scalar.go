package proxyfile

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/statuses"
	"go.yaml.in/yaml/v3"
)

// A Size is a number of bytes. In a file, it is a whole number, alone or with KiB, MiB or GiB.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSize reads "64KiB", "1MiB" or a number of bytes.
func parseSize(text string) (Size, error) {
	number, unit := text, Size(1)
	for _, u := range sizeUnits {
		if before, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = strings.TrimSpace(before), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || Size(n) > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size: write one such as 64KiB or 1MiB", text)
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
	*s, err = parseSize(text)
	return err
}

// Type names the value in a flag's help.
func (*Size) Type() string { return "size" }

// Prefixes are ranges of addresses. In a file or a flag, a single address is also a range.
type Prefixes []netip.Prefix

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if ip, one := netip.ParseAddr(text); one == nil && ip.Zone() == "" {
		p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	if err != nil {
		return p, fmt.Errorf("%q is not a range of addresses: write one such as 10.0.0.0/8, or one address", text)
	}
	if mapped := 128 - 32; p.Addr().Is4In6() && p.Bits() >= mapped { // a peer's address is compared as IPv4
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p.Masked(), nil
}

// Set, String and Type make Prefixes a flag, which may be repeated.
func (p *Prefixes) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		prefix, err := parsePrefix(one)
		if err != nil {
			return err
		}
		*p = append(*p, prefix)
	}
	return nil
}

func (p *Prefixes) String() string { return strings.Join(p.Texts(), ", ") }

// Type names the value in a flag's help.
func (*Prefixes) Type() string { return "addresses" }

// Texts returns the ranges as text.
func (p Prefixes) Texts() []string {
	texts := make([]string, len(p))
	for i, prefix := range p {
		texts[i] = prefix.String()
	}
	return texts
}

// wanted describes the values that a setting takes.
func wanted(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Duration:
		return "a duration such as 500ms, 30s or 24h"
	case Size:
		return "a size such as 64KiB or 1MiB"
	case netip.Prefix:
		return "a range of addresses such as 10.0.0.0/8, or one address"
	case statuses.Range:
		return "a status such as 201, a class such as 2xx, or a range such as 520-529"
	case bool:
		return "true or false"
	case int:
		return "a whole number"
	}
	return "a text"
}

// setScalar sets v to the value of a node, or returns the mistake in it.
func setScalar(n *yaml.Node, v reflect.Value) string {
	wrong := fmt.Sprintf("%q is not valid here: write %s", n.Value, wanted(v))
	switch at := v.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(n.Value)
		if err != nil || n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			return wrong
		}
		*at = d
	case *Size:
		size, err := parseSize(n.Value)
		if err != nil {
			return wrong
		}
		*at = size
	case *netip.Prefix:
		prefix, err := parsePrefix(n.Value)
		if err != nil {
			return err.Error()
		}
		*at = prefix
	case *statuses.Range:
		s, err := statuses.Parse(n.Value)
		if err != nil {
			return err.Error()
		}
		*at = s
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
