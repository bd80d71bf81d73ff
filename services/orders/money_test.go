package orders

import (
	"math/big"
	"strings"
	"testing"
)

func TestMoney_IsExact(t *testing.T) {
	for _, c := range []struct {
		prices     []string
		quantities []int64
		total      string
	}{
		{[]string{"19.90"}, []int64{2}, "39.80"},
		{[]string{"0.1", "0.2"}, []int64{1, 1}, "0.30"},
		{[]string{"0.1"}, []int64{3}, "0.30"},
		{[]string{"5"}, []int64{2}, "10.00"},
		{[]string{"0.125"}, []int64{3}, "0.375"},
		{[]string{"0.0001", "1"}, []int64{1, 1}, "1.0001"},
		{[]string{"0"}, []int64{1000000}, "0.00"},
		{[]string{"0.00"}, []int64{1}, "0.00"},
		{[]string{"90071992547.4099"}, []int64{1}, "90071992547.4099"},
		{[]string{"999999999999.9999", "999999999999.9999"}, []int64{1000000, 1}, "1000000999999999899.9999"},
	} {
		var total amount
		for i, text := range c.prices {
			price, err := parseAmount(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			total = total.plus(c.quantities[i], price)
		}
		if total.String() != c.total {
			t.Errorf("%v × %v is %s, want %s", c.quantities, c.prices, total, c.total)
		}
	}
}

func TestMoney_AnAmountThatIsNotPlainDecimalTextIsRejected(t *testing.T) {
	for _, text := range []string{
		"", "-1", "+1", "1.", ".5", "01", "00", "1e2", "1,5", "1 ", " 1", "1.23456", "1234567890123", "0x10", "NaN", "Inf", "１", "1_000", "1.2.3", "1\n",
		strings.Repeat("9", 1000),
	} {
		if a, err := parseAmount(text); err == nil {
			t.Errorf("%q is taken as %v", text, a)
		}
	}
}

// An amount is a result of exact arithmetic on fractions.
func FuzzAmount(f *testing.F) {
	f.Add("19.90", int64(2), "0.0001", int64(1000000))
	f.Fuzz(func(t *testing.T, a string, n int64, b string, m int64) {
		x, errX := parseAmount(a)
		y, errY := parseAmount(b)
		if errX != nil || errY != nil || n < 0 || m < 0 {
			return
		}
		got, ok := new(big.Rat).SetString(amount{}.plus(n, x).plus(m, y).String())
		p, _ := new(big.Rat).SetString(a)
		q, _ := new(big.Rat).SetString(b)
		p.Mul(p, new(big.Rat).SetInt64(n))
		q.Mul(q, new(big.Rat).SetInt64(m))
		if want := p.Add(p, q); !ok || got.Cmp(want) != 0 {
			t.Errorf("%d×%s + %d×%s is %v, want %v", n, a, m, b, got, want)
		}
	})
}
