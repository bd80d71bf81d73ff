package tokenfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParse_LinesAreFieldsAndAnErrorHasItsNumber(t *testing.T) {
	var got [][]string
	err := Parse(strings.NewReader("# a comment\n\n ada\thash \n  # another\nbob hash"), func(fields []string) error {
		got = append(got, fields)
		if fields[0] == "bob" {
			return errors.New("no")
		}
		return nil
	})
	if want := "[[ada hash] [bob hash]]"; fmt.Sprint(got) != want {
		t.Errorf("the fields are %v, want %s", got, want)
	}
	if err == nil || err.Error() != "line 5: no" {
		t.Errorf("the error is %v", err)
	}
}

func TestParseHash_OnlyTheHexadecimalOfASHA256IsAHash(t *testing.T) {
	hash := sha256.Sum256([]byte("token"))
	text := hex.EncodeToString(hash[:])
	if got, err := ParseHash(text); err != nil || got != hash || IsOfNothing(got) {
		t.Errorf("%x, %v", got, err)
	}
	nothing := sha256.Sum256(nil)
	if got, err := ParseHash(hex.EncodeToString(nothing[:])); err != nil || !IsOfNothing(got) {
		t.Errorf("the hash of an empty token: %x, %v", got, err)
	}
	for _, text := range []string{"", "token", text[2:], text + "00", text[:63] + "g"} {
		if _, err := ParseHash(text); err == nil || err.Error() != "the hash must have 64 hexadecimal digits, as sha256sum prints them" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestIsName_ANameIsShortAndHasNoBlank(t *testing.T) {
	for name, valid := range map[string]bool{"ada": true, "a.b_c@d-E9": true, strings.Repeat("a", 128): true, "": false, "a b": false, "ä": false, "a\n": false, strings.Repeat("a", 129): false} {
		if IsName(name) != valid {
			t.Errorf("%q is a name: %v", name, !valid)
		}
	}
}
