package defaults

import (
	"testing"
	"time"
)

func TestDefaults_AnIDIsNotForgottenBeforeItsResult(t *testing.T) {
	const forever = -1
	for _, c := range []struct {
		remember, keep time.Duration
		short          bool
	}{
		{0, 2, false},
		{1, 2, true},
		{2, 2, false},
		{3, 2, false},
		{forever, 2, false},
		{0, forever, false},
		{3, forever, true},
		{forever, forever, false},
	} {
		if got := RememberTooShort(c.remember, c.keep); got != c.short {
			t.Errorf("%d is too short for %d: %v", c.remember, c.keep, got)
		}
	}
}

func TestDefaults_TheLongestPauseOfAConsumerIsNotShorterThanTheFirst(t *testing.T) {
	for set, want := range map[[2]time.Duration][2]time.Duration{
		{}:               {100 * time.Millisecond, 30 * time.Second},
		{time.Second, 5}: {time.Second, time.Second},
		{1, 5}:           {1, 5},
		{time.Minute, 0}: {time.Minute, time.Minute},
	} {
		if first, longest := Backoff("p", set[0], set[1]); first != want[0] || longest != want[1] {
			t.Errorf("%v is %v and %v, want %v", set, first, longest, want)
		}
	}
}

func TestDefaults_ASettingIsWhatWasSetOrItsDefault(t *testing.T) {
	if n := Positive("p: Config.N", 3, 5); n != 3 {
		t.Errorf("3 is %d", n)
	}
	if d := Positive("p: Config.D", 0, time.Minute); d != time.Minute {
		t.Errorf("0 is %v", d)
	}
	defer func() {
		want := "p: Config.D is negative (-1s): write a positive value, or leave it 0 for the default, 1m0s"
		if text := recover(); text != want {
			t.Errorf("the panic says %q", text)
		}
	}()
	Positive("p: Config.D", -time.Second, time.Minute)
}
