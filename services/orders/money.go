package orders

import (
	"errors"
	"math/big"
	"regexp"
	"strings"
)

// An amount is an exact sum of money: a decimal with at most 4 digits after the point,
// stored as a number of ten-thousandths.
type amount struct {
	units    *big.Int
	decimals int // the number of digits after the point in its text
}

const (
	maxDecimals = 4
	minDecimals = 2 // of the amounts in responses
)

var amountForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,11})(?:\.([0-9]{1,4}))?$`)

var errAmount = errors.New(`must be a decimal in a string, such as "19.90": at most 12 digits before the point and 4 after it, no sign, no exponent`)

// parseAmount parses a decimal with at most 12 digits before the point.
func parseAmount(text string) (amount, error) {
	found := amountForm.FindStringSubmatch(text)
	if found == nil {
		return amount{}, errAmount
	}
	whole, fraction := found[1], found[2]
	units, _ := new(big.Int).SetString(whole+fraction+strings.Repeat("0", maxDecimals-len(fraction)), 10)
	return amount{units, len(fraction)}, nil
}

// plus returns a + n×b, with as many digits after the point as the more precise one.
func (a amount) plus(n int64, b amount) amount {
	product := new(big.Int).Mul(big.NewInt(n), b.units)
	if a.units != nil {
		product.Add(product, a.units)
	}
	return amount{product, max(a.decimals, b.decimals)}
}

// String returns the amount with at least 2 digits after the point.
func (a amount) String() string {
	digits := a.units.String()
	if short := maxDecimals + 1 - len(digits); short > 0 {
		digits = strings.Repeat("0", short) + digits
	}
	point := len(digits) - maxDecimals
	return digits[:point] + "." + digits[point:point+max(a.decimals, minDecimals)]
}
