package dynamostore

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A service has a clock, and answers requests.
type service struct {
	c     *clock
	ahead time.Duration // of the clock of the process
}

func (s *service) now() time.Time { return time.Now().Add(s.ahead) }

// answer is a request that takes so long on its way there and back.
func (s *service) answer(there, back time.Duration) {
	sent := s.c.local()
	time.Sleep(there)
	h := http.Header{"X-Amzn-Requestid": {"1"}, "Date": {s.now().UTC().Format(http.TimeFormat)}}
	time.Sleep(back)
	s.c.response(sent, h)
}

func newService(skew time.Duration) *service {
	return &service{c: newClock(skew), ahead: 26 * 365 * 24 * time.Hour}
}

// check wants the clock to be known, and on the right sides of the service's.
func (s *service) check(t *testing.T, skew, apart time.Duration) {
	t.Helper()
	r, err := s.c.read()
	if err != nil {
		t.Fatal(err)
	}
	now := s.now().UnixMicro()
	if early := now - r.judging - skew.Microseconds(); early < 0 || early > apart.Microseconds() {
		t.Errorf("the lower bound is %dµs behind the service, want 0 to %v", early, apart)
	}
	if late := r.begin - now; late < 0 || late > apart.Microseconds() {
		t.Errorf("the upper bound is %dµs ahead of the service, want 0 to %v", late, apart)
	}
}

func TestClock_ItsBoundsIncludeTheServicesAndComeCloser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const skew = 300 * time.Millisecond
		s := newService(skew)
		if _, err := s.c.read(); err == nil {
			t.Error("it is known without a response")
		}
		for n := range 2000 {
			s.answer(3*time.Millisecond, 8*time.Millisecond)
			if n > 0 {
				s.check(t, skew, time.Second+20*time.Millisecond)
			}
			time.Sleep(time.Duration(n%97) * time.Millisecond)
		}
		// begun never goes back, but a reading a second later is the bound itself.
		time.Sleep(time.Second)
		s.check(t, skew, 40*time.Millisecond)
		time.Sleep(time.Hour)
		s.check(t, skew, 2*time.Second) // a monotonic clock may be wrong by 1.8 s then
		s.answer(0, time.Millisecond)
		time.Sleep(2 * time.Second) // until the last reading has passed
		s.check(t, skew, 1100*time.Millisecond)
	})
}

func TestClock_EachReadingBeginsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(0)
		s.answer(time.Millisecond, time.Millisecond)
		s.answer(time.Millisecond, time.Millisecond)
		for last := int64(0); last < 100; last++ {
			a, _ := s.c.read()
			b, err := s.c.read()
			if err != nil || b.begin <= a.begin {
				t.Fatalf("began at %d, then at %d, error %v", a.begin, b.begin, err)
			}
		}
	})
}

// The monotonic clock of a suspended machine stops, so the service's goes ahead.
func TestClock_BeginsAnewWhenADateContradictsIt(t *testing.T) {
	for name, jump := range map[string]time.Duration{"suspended": time.Hour, "set back": -time.Hour, "by little": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const skew = 100 * time.Millisecond
				s := newService(skew)
				for range 10 {
					s.answer(time.Millisecond, time.Millisecond)
					time.Sleep(111 * time.Millisecond)
				}
				before, err := s.c.read()
				if err != nil {
					t.Fatal(err)
				}
				s.ahead += jump
				s.answer(time.Millisecond, time.Millisecond)
				if _, err := s.c.read(); err == nil || !strings.Contains(err.Error(), "is off by") {
					t.Errorf("after one contradiction: %v", err)
				}
				if s.c.current(before.generation) {
					t.Error("the generation goes on")
				}
				s.answer(time.Millisecond, time.Millisecond)
				s.check(t, skew, 1100*time.Millisecond)
			})
		})
	}
}

// One server's clock is wrong, and the next response is of another server.
func TestClock_OneWrongDateIsNeverUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const skew = 100 * time.Millisecond
		s := newService(skew)
		for n := range 100 {
			wrong := n%3 == 2
			if wrong {
				s.ahead += 10 * time.Second
			}
			s.answer(time.Millisecond, time.Millisecond)
			if wrong {
				s.ahead -= 10 * time.Second
			}
			if r, err := s.c.read(); err == nil && (r.judging > s.now().UnixMicro() || r.begin < s.now().UnixMicro()) {
				t.Fatalf("response %d: the clock is from %d to %d, that of the service shows %d", n, r.judging, r.begin, s.now().UnixMicro())
			}
			time.Sleep(70 * time.Millisecond)
		}
	})
}

// Dates that differ by up to the skew are no contradiction, and no lease ends early by them.
func TestClock_ServersMayDifferByTheSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const skew = 400 * time.Millisecond
		s := newService(skew)
		right := s.ahead
		for n := range 1000 {
			s.ahead = right + time.Duration(n%3-1)*skew/2
			s.answer(time.Millisecond, time.Millisecond)
			s.ahead = right
			if n == 0 {
				continue
			}
			r, err := s.c.read()
			if err != nil {
				t.Fatalf("response %d: %v", n, err)
			}
			// Of two processes, one may have seen only the slowest server, and the other only the
			// fastest.
			now, half := s.now().UnixMicro(), (skew / 2).Microseconds()
			if r.judging > now-half || r.begin < now-half {
				t.Fatalf("response %d: from %d to %d, that of the service shows %d", n, r.judging, r.begin, now)
			}
			time.Sleep(37 * time.Millisecond)
		}
	})
}

func TestClock_SaysThatThereIsNoDate(t *testing.T) {
	c := newClock(time.Second)
	for _, h := range []http.Header{{}, {"Date": {time.Now().UTC().Format(http.TimeFormat)}}} { // of something on the way
		c.response(0, h)
		if _, err := c.read(); err == nil || strings.Contains(err.Error(), "header Date") {
			t.Errorf("%v: %v", h, err)
		}
	}
	c.response(0, http.Header{"X-Amzn-Requestid": {"1"}})
	if _, err := c.read(); err == nil || !strings.Contains(err.Error(), "have no header Date") {
		t.Errorf("%v", err)
	}
}
