package slots

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func requestOf(addr string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = addr
	return r
}

// A line is the requests of a test that ask for slots.
type line struct {
	t     *testing.T
	slots *Slots

	mu   sync.Mutex
	held map[string]*Slot
	got  []string // slots, in that order
	lost []string // and in that order, none
}

// ask asks for a slot for a request, whose name is where it comes from.
func (l *line) ask(name string, keyed bool) { l.askAs("", name, keyed) }

// askAs does so for a request of a tenant.
func (l *line) askAs(tenant, name string, keyed bool) {
	go func() {
		sl := l.slots.Take(httptest.NewRecorder(), requestOf(name), keyed, tenant)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held[name] = sl; sl == nil {
			l.lost = append(l.lost, name)
			return
		}
		l.got = append(l.got, name)
	}()
	synctest.Wait()
}

func (l *line) giveBack(names ...string) {
	for _, name := range names {
		l.held[name].GiveBack()
		synctest.Wait()
	}
}

func (l *line) want(got []string, want ...string) {
	l.t.Helper()
	if !slices.Equal(got, want) {
		l.t.Errorf("got %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}

func newLine(t *testing.T, most int) *line {
	return &line{t: t, slots: New(most), held: map[string]*Slot{}}
}

func TestQueue_AFreeSlotGoesToTheAddressThatHoldsFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 4)
		for _, name := range []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:1"} {
			l.ask(name, true)
		}
		for _, name := range []string{"10.0.0.1:4", "10.0.0.2:2", "10.0.0.3:1", "10.0.0.2:3", "10.0.0.3:2"} {
			l.ask(name, true)
		}
		l.got = nil
		l.giveBack("10.0.0.1:1") // 2, 1 and 0 are held
		l.want(l.got, "10.0.0.3:1")
		l.giveBack("10.0.0.1:2") // 1, 1 and 1: the first that came
		l.want(l.got, "10.0.0.3:1", "10.0.0.1:4")
		l.giveBack("10.0.0.2:1") // 2, 0 and 1
		l.want(l.got, "10.0.0.3:1", "10.0.0.1:4", "10.0.0.2:2")
		wait(2 * slotWait)
		slices.Sort(l.lost)
		l.want(l.lost, "10.0.0.2:3", "10.0.0.3:2")
		if len(l.slots.queue) != 0 || len(l.slots.clients) != 3 {
			t.Errorf("%d wait, and there are %d clients", len(l.slots.queue), len(l.slots.clients))
		}
	})
}

func TestQueue_OfOneAddressTheFirstIsServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 4)
		for _, port := range []string{"1", "2", "3"} {
			l.ask("10.0.0.1:"+port, false)
		}
		for _, port := range []string{"4", "5", "6"} {
			l.ask("10.0.0.1:"+port, false)
		}
		l.ask("10.0.0.1:7", true) // the quarter
		l.want(l.got, "10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:7")
		l.got = nil
		l.giveBack("10.0.0.1:7") // which is for no other
		l.want(l.got)
		l.giveBack("10.0.0.1:3", "10.0.0.1:1", "10.0.0.1:2")
		l.want(l.got, "10.0.0.1:4", "10.0.0.1:5", "10.0.0.1:6")
	})
}

func TestQueue_InAFullQueueAnAddressGivesUpItsLastPlaceForOneWithFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 4)
		for _, name := range []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4"} {
			l.ask(name, true)
		}
		for _, name := range []string{"10.0.0.1:5", "10.0.0.1:6", "10.0.0.1:7", "10.0.0.2:1"} {
			l.ask(name, true)
		}
		l.want(l.lost)
		l.ask("10.0.0.1:8", true)
		l.want(l.lost, "10.0.0.1:8")
		l.ask("10.0.0.3:1", true)
		l.want(l.lost, "10.0.0.1:8", "10.0.0.1:7")
		l.ask("10.0.0.2:2", true) // it would have as many places as the other then
		l.want(l.lost, "10.0.0.1:8", "10.0.0.1:7", "10.0.0.2:2")
		l.got = nil
		l.giveBack("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4")
		l.want(l.got, "10.0.0.2:1", "10.0.0.3:1", "10.0.0.1:5", "10.0.0.1:6")
	})
}

func TestQueue_AnAddressOfIPv6IsItsNetwork(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"[2001:db8:1:2::3]:1", "[2001:db8:1:2:ffff::9]:2", true},
		{"[2001:db8:1:2::3]:1", "[2001:db8:1:3::3]:1", false},
		{"[fe80::1%eth0]:1", "[fe80::1%eth1]:1", true},
		{"192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"192.0.2.1:1", "192.0.2.2:1", false},
		{"@", "", true},
	} {
		if same := addressOf(requestOf(c.a)) == addressOf(requestOf(c.b)); same != c.same {
			t.Errorf("%s and %s are the same: %v", c.a, c.b, same)
		}
	}
}

// The counts are always right, and at the end no client holds a slot.
func TestQueue_SlotsAreCountedRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(8)
		var now, most, unkeyed, mostUnkeyed int
		count := func(keyed bool, n int) {
			if s.mu.Lock(); !keyed {
				unkeyed += n
				mostUnkeyed = max(mostUnkeyed, unkeyed)
			}
			now += n
			most = max(most, now)
			s.mu.Unlock()
		}
		for i := range 2000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Millisecond)
			from := requestOf("10.0.0." + string(rune('1'+rand.IntN(5))) + ":1").WithContext(ctx)
			go func() {
				defer cancel()
				keyed, tenant := i%3 == 0, ""
				if keyed {
					tenant = string(rune('a' + rand.IntN(3)))
				}
				sl := s.Take(httptest.NewRecorder(), from, keyed, tenant)
				if sl == nil {
					return
				}
				count(keyed, 1)
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
				count(keyed, -1)
				sl.GiveBack()
			}()
			time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		}
		wait(time.Minute)
		if most != 8 || mostUnkeyed != 6 {
			t.Errorf("%d were held, %d without a key", most, mostUnkeyed)
		}
		if s.held != 0 || s.heldUnkeyed != 0 || s.first != nil || len(s.queue) != 0 || len(s.clients) != 0 || len(s.tenants.held) != 0 {
			t.Errorf("in the end %d are held, %d without a key; %d wait, of %d clients and %d tenants", s.held, s.heldUnkeyed, len(s.queue), len(s.clients), len(s.tenants.held))
		}
	})
}

func TestQueue_AFreeSlotCostsNoAllocation(t *testing.T) {
	s, w, r := New(8), httptest.NewRecorder(), requestOf("192.0.2.1:1")
	if n := testing.AllocsPerRun(1000, func() { s.Take(w, r, true, "acme").GiveBack() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSlot(b *testing.B) {
	s, w, r := New(1024), httptest.NewRecorder(), requestOf("192.0.2.1:1")
	for b.Loop() {
		s.Take(w, r, true, "acme").GiveBack()
	}
}
