package orders

import (
	"strings"
	"testing"
)

func TestAPublicIdIsItsTypeAndAULID(t *testing.T) {
	i := id{0x01, 0x93, 0x4e, 0x1d, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}
	public := i.public(orderPrefix)
	if public != "ord_01JD71T001081G81860W40J2QZ" {
		t.Errorf("%s", public)
	}
	back, err := parseID(orderPrefix, public)
	if err != nil || back != i {
		t.Errorf("%v, %v", back, err)
	}
}

func TestIdsMadeLaterSortLater(t *testing.T) {
	a := newID()
	b := newID()
	if b.made().Before(a.made()) {
		t.Errorf("%v, then %v", a.made(), b.made())
	}
	if a == b {
		t.Error("one id twice")
	}
}

func TestAnIdThatIsNotWellFormedIsRefused(t *testing.T) {
	good := newID().public(orderPrefix)
	code := strings.TrimPrefix(good, "ord_")
	for text, want := range map[string]string{
		"":                "must start with ord_",
		code:              "must start with ord_",
		"_" + code:        "must start with ord_",
		"shp_" + code:     "another type",
		"ORD_" + code:     "another type",
		"ord_":            "26 characters",
		"ord_" + code[1:]: "26 characters",
		good + "0":        "26 characters",
		"ord_" + strings.ToLower(code[:25]) + "a": "0-9 and A-Z",
		"ord_" + code[:25] + "U":                  "0-9 and A-Z",
		"ord_" + code[:25] + "I":                  "0-9 and A-Z",
		"ord_" + code[:25] + "\x00":               "0-9 and A-Z",
		"ord_" + code[:24] + "ä":                  "0-9 and A-Z",
		"ord_" + "8" + code[1:]:                   "0-7",
		"ord_" + strings.Repeat("Z", 26):          "0-7",
	} {
		if _, err := parseID(orderPrefix, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add(newID().public(orderPrefix))
	f.Add("ord_8ZZZZZZZZZZZZZZZZZZZZZZZZZ")
	f.Fuzz(func(t *testing.T, text string) {
		if i, err := parseID(orderPrefix, text); err == nil && i.public(orderPrefix) != text {
			t.Errorf("%q is read as %s", text, i.public(orderPrefix))
		}
	})
}
