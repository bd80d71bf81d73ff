package httponce_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// Go's encoding/json, ASP.NET and others do not mind the case of a name, and of two
// such members take the last.
func TestSecurity_BodiesThatDifferToAServerThatDoesNotMindTheCaseAreDifferent(t *testing.T) {
	many := ""
	for i := range 40 {
		many += fmt.Sprintf(`"m%d":%d,`, i, i)
	}
	fields := []string{"/amount", "/lines/0/unitPrice", "/a~1b/~0"}
	for name, pair := range map[string]struct {
		fields []string
		a, b   string
	}{
		"in another order":        {nil, `{"amount":1,"Amount":2}`, `{"Amount":2,"amount":1}`},
		"deep":                    {nil, `[{"x":{"amount":1,"aMount":2}}]`, `[{"x":{"aMount":2,"amount":1}}]`},
		"with escapes":            {nil, `{"\u0061mount":1,"Amount":2}`, `{"Amount":2,"\u0061mount":1}`},
		"a Kelvin sign":           {nil, `{"key":1,"\u212aey":2}`, `{"\u212aey":2,"key":1}`},
		"not ASCII":               {nil, `{"größe":1,"GRÖßE":2}`, `{"GRÖßE":2,"größe":1}`},
		"of many":                 {nil, `{"A":1,` + many + `"a":2}`, `{"a":2,` + many + `"A":1}`},
		"beside a longer one":     {nil, `{"aa":1,"a":[{"b":1},"]}"],"A":2}`, `{"aa":1,"A":2,"a":[{"b":1},"]}"]}`},
		"a field":                 {fields, `{"Amount":1}`, `{"Amount":1000}`},
		"a field and another":     {fields, `{"amount":1}`, `{"amount":1,"Amount":1000}`},
		"a field's way":           {fields, `{"Lines":[{"unitPrice":1}]}`, `{"Lines":[{"unitPrice":2}]}`},
		"a field's end":           {fields, `{"lines":[{"UnitPrice":1}]}`, `{"lines":[{"UnitPrice":2}]}`},
		"a field with a slash":    {fields, `{"A/b":{"~":1}}`, `{"A/b":{"~":2}}`},
		"in what a field selects": {[]string{"/lines"}, `{"lines":{"a":1,"A":2}}`, `{"lines":{"A":2,"a":1}}`},
	} {
		if print := httponce.CanonicalJSON(pair.fields...); bytes.Equal(fingerprintOf(print, pair.a), fingerprintOf(print, pair.b)) {
			t.Errorf("%s: %.60s and %.60s are one request", name, pair.a, pair.b)
		}
	}
	for name, pair := range map[string]struct {
		fields []string
		a, b   string
	}{
		"other names":             {nil, `{"amount":1,"Account":2}`, `{"Account":2,"amount":1}`},
		"in other objects":        {nil, `{"a":{"b":1},"c":{"B":2}}`, `{"c":{"B":2},"a":{"b":1}}`},
		"in values":               {nil, `{"a":"X","b":"x","c":["x","X"]}`, `{"b":"x","a":"X","c":["x","X"]}`},
		"of many":                 {nil, `{"A":1,` + many + `"b":2}`, `{"b":2,` + many + `"A":1}`},
		"no field":                {fields, `{"amount":1,"at":1}`, `{"amount":1,"at":2}`},
		"not on a field's way":    {fields, `{"amount":1,"other":[{"UnitPrice":1}]}`, `{"amount":1,"other":[{"UnitPrice":2}]}`},
		"another element":         {fields, `{"lines":[{"unitPrice":1},{"UnitPrice":1}]}`, `{"lines":[{"unitPrice":1},{"UnitPrice":2}]}`},
		"below a field":           {fields, `{"amount":{"Amount":1},"x":1}`, `{"x":2,"amount":{"Amount":1}}`},
		"both are fields":         {[]string{"/a", "/A"}, `{"a":1,"A":2,"x":1}`, `{"a":1,"A":2,"x":1}`},
		"empty":                   {nil, `{"lines":[],"x":{},"":1}`, `{"x":{ },"lines":[ ],"":1}`},
		"literals":                {nil, `[true,null,-1.5e3]`, ` [ true , null , -1500 ] `},
		"a text at the very end":  {nil, `"a\\"`, ` "a\\"`},
		"a number alone":          {nil, `1`, `1.0`},
		"a text that looks like ": {nil, `{"a":"{\"A\":1}","b":1}`, `{"b":1,"a":"{\"A\":1}"}`},
	} {
		if print := httponce.CanonicalJSON(pair.fields...); !bytes.Equal(fingerprintOf(print, pair.a), fingerprintOf(print, pair.b)) {
			t.Errorf("%s: %.60s and %.60s are two requests", name, pair.a, pair.b)
		}
	}
}

// Python, Ruby and PHP read a number as a double only if it has a point or an
// exponent, and JavaScript always does.
func TestSecurity_NumbersThatAreRoundedOnlyInOneSpellingAreDifferent(t *testing.T) {
	long := "1" + strings.Repeat("0", 400)
	for _, pair := range [][2]string{
		{"9007199254740993", "9007199254740993.0"},
		{"-9007199254740993", "-9007199254740993.0"},
		{"100000000000000000000000", "1e23"},
		{"12345678901234567890", "1.2345678901234567890E19"},
		{long, "1e400"},
	} {
		for _, fields := range [][]string{nil, {"/amount"}} {
			print := httponce.CanonicalJSON(fields...)
			a, b := `{"amount":[`+pair[0]+`]}`, `{"amount":[`+pair[1]+`]}`
			if bytes.Equal(fingerprintOf(print, a), fingerprintOf(print, b)) {
				t.Errorf("fields %q: %.40s and %.40s are one request", fields, a, b)
			}
		}
	}
	other := httponce.CanonicalJSON("/amount")
	if !bytes.Equal(fingerprintOf(other, `{"amount":1,"x":1e23}`), fingerprintOf(other, `{"x":2,"amount":1}`)) {
		t.Error("a number that does not count makes two requests of one")
	}
	whole := httponce.CanonicalJSON()
	for _, pair := range [][2]string{{"100", "1e2"}, {"9007199254740991", "9007199254740991.0"}, {"0.10", "1e-1"}, {"1e-400", "0.1e-399"}} {
		if !bytes.Equal(fingerprintOf(whole, pair[0]), fingerprintOf(whole, pair[1])) {
			t.Errorf("%s and %s are two requests", pair[0], pair[1])
		}
	}
}

func fingerprintOf(print func(*http.Request, []byte) []byte, body string) []byte {
	return print(httptest.NewRequest("POST", "/orders", strings.NewReader(body)), []byte(body))
}

// Without any of the fields nothing of the body would be compared.
func TestSecurity_ABodyWithNoneOfTheFieldsCountsWithItsBytes(t *testing.T) {
	print := httponce.CanonicalJSON("/amount", "/lines/0/price")
	for _, pair := range [][2]string{
		{`{"sum":1}`, `{"sum":1000}`},
		{`[{"amount":1}]`, `[{"amount":1000}]`},
		{`{"payment":{"amount":1}}`, `{"payment":{"amount":1000}}`},
		{`1`, `1000`},
		{`{}`, `{"sum":1}`},
		{`{"lines":[]}`, `{"lines":[{"sum":1}]}`},
	} {
		if bytes.Equal(fingerprintOf(print, pair[0]), fingerprintOf(print, pair[1])) {
			t.Errorf("%s and %s are one request", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{
		{`{"amount":1,"at":1}`, `{"at":2,"amount":1.0}`},
		{`{"amount":null,"at":1}`, `{"at":2,"amount":null}`},
		{`{"lines":[{"price":1}],"at":1}`, `{"lines":[{"price":1}],"at":2}`},
	} {
		if !bytes.Equal(fingerprintOf(print, pair[0]), fingerprintOf(print, pair[1])) {
			t.Errorf("%s and %s are two requests", pair[0], pair[1])
		}
	}
}
