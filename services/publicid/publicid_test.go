package publicid_test

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/services/publicid"
)

var orders, shipments = publicid.NewType("ord_"), publicid.NewType("shp_")

func Example() {
	orders := publicid.NewType("ord_")
	id := publicid.ID{0x01, 0x93, 0x4e, 0x1d, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255}

	public := orders.Format(id)
	fmt.Println(public)

	back, err := orders.Parse(public)
	fmt.Println(back == id, err, back.Time().Format(time.RFC3339))

	_, err = orders.Parse("shp_01JD71T001081G81860W40J2QZ")
	fmt.Println(err)
	// Output:
	// ord_01JD71T001081G81860W40J2QZ
	// true <nil> 2024-11-21T09:45:43Z
	// names something of another type: must start with ord_
}

func TestPublicID_IdsMadeLaterSortLater(t *testing.T) {
	a := publicid.New()
	for !publicid.New().Time().After(a.Time()) { // until the millisecond is over
	}
	b := publicid.New()
	if bytes.Compare(a[:], b[:]) >= 0 || orders.Format(a) >= orders.Format(b) {
		t.Errorf("%s, then %s", orders.Format(a), orders.Format(b))
	}
}

func TestPublicID_AnIdIsOfTheTimeAtWhichItWasMade(t *testing.T) {
	began := time.Now().Truncate(time.Millisecond)
	made := publicid.New().Time()
	if made.Before(began) || made.After(time.Now()) || made.Location() != time.UTC {
		t.Errorf("made at %v, between %v and %v", made, began, time.Now())
	}
}

func TestPublicID_NoTwoIdsAreTheSame(t *testing.T) {
	seen := map[publicid.ID]bool{}
	for range 10_000 {
		id := publicid.New()
		if seen[id] {
			t.Fatalf("%s twice", orders.Format(id))
		}
		seen[id] = true
	}
}

func TestPublicID_AnIdThatIsNotWellFormedIsRejected(t *testing.T) {
	good := orders.Format(publicid.New())
	code := strings.TrimPrefix(good, "ord_")
	for text, want := range map[string]string{
		"":                "must start with ord_",
		code:              "must start with ord_",
		"_" + code:        "must start with ord_",
		"ord-" + code:     "must start with ord_",
		"shp_" + code:     "another type",
		"ORD_" + code:     "another type",
		" " + good:        "another type",
		"ord_":            "26 characters",
		"ord_" + code[1:]: "26 characters",
		good + "0":        "26 characters",
		good + "\n":       "26 characters",
		"ord_" + strings.ToLower(code[:25]) + "a": "0-9 and A-Z",
		"ord_" + code[:25] + "U":                  "0-9 and A-Z",
		"ord_" + code[:25] + "I":                  "0-9 and A-Z",
		"ord_" + code[:25] + "L":                  "0-9 and A-Z",
		"ord_" + code[:25] + "O":                  "0-9 and A-Z",
		"ord_" + code[:25] + "-":                  "0-9 and A-Z",
		"ord_" + code[:25] + "\x00":               "0-9 and A-Z",
		"ord_" + code[:24] + "ä":                  "0-9 and A-Z",
		"ord_" + "8" + code[1:]:                   "0-7",
		"ord_" + strings.Repeat("Z", 26):          "0-7",
	} {
		if _, err := orders.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := shipments.Parse(good); err == nil {
		t.Errorf("%s is read as a shipment's", good)
	}
}

func TestPublicID_APrefixThatIsNotAsThePackageSaysPanics(t *testing.T) {
	for _, prefix := range []string{"", "_", "ord", "Ord_", "1rd_", "or_d_", "ord__", "ord.", "örd_", strings.Repeat("a", 17) + "_"} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "publicid: the prefix is") {
					t.Errorf("%q: %s", prefix, text)
				}
			}()
			publicid.NewType(prefix)
		}()
	}
	for _, prefix := range []string{"a_", "a-", "o2_", strings.Repeat("a", 16) + "_"} {
		publicid.NewType(prefix)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(orders.Format(publicid.New()))
	f.Add("ord_8ZZZZZZZZZZZZZZZZZZZZZZZZZ")
	f.Add("ord_01jd71t001081g81860w40j2qz")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := orders.Parse(text)
		if err != nil {
			return
		}
		if back := orders.Format(id); back != text || len(text) != len("ord_")+26 {
			t.Errorf("%q is read as %s", text, back)
		}
	})
}

func FuzzFormat(f *testing.F) {
	f.Add(make([]byte, 16), bytes.Repeat([]byte{255}, 16))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if len(a) != 16 || len(b) != 16 {
			t.Skip("an ID has 16 bytes")
		}
		one, other := publicid.ID(a), publicid.ID(b)
		back, err := orders.Parse(orders.Format(one))
		if err != nil || back != one {
			t.Errorf("%x becomes %s, and back %x, %v", one, orders.Format(one), back, err)
		}
		if cmp.Compare(orders.Format(one), orders.Format(other)) != bytes.Compare(a, b) {
			t.Errorf("%s and %s do not sort like their bytes", orders.Format(one), orders.Format(other))
		}
	})
}
