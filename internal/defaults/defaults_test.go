package defaults

import (
	"testing"
	"time"
)

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
