package slots

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy/internal/inbound"
)

func TestRoom_AnAddressThatTakesNothingKeepsOutNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 8)
		for range 6 { // and a quarter is for requests with a key
			s.get(t, "127.0.0.2:1000", "/long")
		}
		wait(shortPatience / 2)
		if got := s.status(t, "127.0.0.2:1000"); got != "503" || s.count() != 0 {
			t.Errorf("another of the same address gets %s, and %v", got, s.ended)
		}
		for i := range 2 { // the address holds more than half
			if got := s.status(t, "127.0.0.3:1000"); got != "200" || s.count() != i+1 {
				t.Errorf("request %d of another address gets %s, and %v", i, got, s.ended)
			}
			s.get(t, "127.0.0.2:1000", "/long")
			wait(slotCheck)
		}
		if want := "while others waited for the upstream, the client read too little of its response, and nothing for 1."; !strings.HasPrefix(s.ended[0], want) {
			t.Errorf("%q", s.ended[0])
		}
	})
}

func TestRoom_WhileNobodyWaitsAClientMayTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 8)
		for range 6 {
			s.get(t, "127.0.0.2:1000", "/long")
		}
		wait(inbound.WriteTime)
		if s.count() != 0 || s.held() != 6 {
			t.Errorf("%d are there, and %v", s.held(), s.ended)
		}
	})
}

func TestRoom_NoMoreAreEndedThanWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 12)
		for i := range 9 {
			s.get(t, fmt.Sprintf("127.0.0.%d:1000", i+10), "/long")
		}
		for range 8 {
			if got := s.status(t, "127.0.0.3:1000"); got != "503" || s.count() != 0 {
				t.Errorf("it gets %s, and %v", got, s.ended)
			}
		}
		wait(2 * patience)
		for i := range 4 {
			if got := s.status(t, "127.0.0.3:1000"); got != "200" || s.count() != 1 {
				t.Errorf("request %d gets %s, and %v", i, got, s.ended)
			}
		}
	})
}

func TestRoom_WhileOneEndsNoOtherIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 8)
		for range 6 {
			s.get(t, "127.0.0.2:1000", "/stays")
		}
		wait(2 * shortPatience)
		if got := s.status(t, "127.0.0.3:1000"); got != "503" {
			t.Errorf("another address gets %s", got)
		}
		if wait(4 * slotWait); s.count() != 1 {
			t.Errorf("for one that waited: %v", s.ended)
		}
	})
}

// All three hold slots of an upstream that has no other, and others wait all the time.
func TestRoom_AClientThatTakesTenKiBASecondIsNotEnded(t *testing.T) {
	for _, c := range []struct {
		rate  int
		pause int // in seconds
		ends  bool
	}{{32 << 10, 1, false}, {slowest + 100, 1, false}, {slowest + 100, 9, false}, {slowest / 2, 1, true}, {100, 1, true}} {
		t.Run(fmt.Sprint(c.rate, " every ", c.pause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlotServer(t, 4)
				for i := range 3 {
					client := s.get(t, fmt.Sprintf("127.0.0.%d:1000", i+10), "/long")
					go func() {
						for b := make([]byte, c.rate*c.pause); ; time.Sleep(time.Duration(c.pause) * time.Second) {
							if _, err := io.ReadFull(client, b); err != nil {
								return
							}
						}
					}()
				}
				for range 80 {
					s.status(t, "127.0.0.3:1000")
				}
				if (s.count() > 0) != c.ends {
					t.Errorf("after %v: %v", 80*slotWait, s.ended)
				}
			})
		})
	}
}

func TestRoom_AStreamThatIsIdleIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 8)
		for range 6 {
			go io.Copy(io.Discard, s.get(t, "127.0.0.2:1000", "/events"))
		}
		for range 100 {
			if got := s.status(t, "127.0.0.3:1000"); got != "503" {
				t.Errorf("another gets %s", got)
			}
		}
		if held := s.held(); held != 6 {
			t.Errorf("%d are there", held)
		}
		if wait(time.Hour); s.count() != 0 {
			t.Errorf("they end with %v", s.ended)
		}
	})
}

// By HTTP/2 a client may go on to send once it has its response, whenever it has something
// to say.
func TestRoom_AStreamMayPauseOnceItsResponseHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 8)
		client := s.client(t, "127.0.0.2:1000", nil)
		in, out := io.Pipe()
		res, err := client.Post("http://x/talk", "", in)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		for range 3 {
			wait(3 * time.Hour)
			heard := make([]byte, len("word"))
			if _, err := io.WriteString(out, "word"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(res.Body, heard); err != nil {
				t.Fatal(err, s.ended)
			}
		}
		out.Close()
		if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil || s.count() > 0 {
			t.Errorf("in the end there are %q, %v, %v", rest, err, s.ended)
		}

		in, out = io.Pipe()
		defer out.Close()
		go client.Post("http://x/", "", in) // gets no response before it has sent all
		wait(59 * time.Minute)
		if held := s.held(); held != 1 {
			t.Errorf("after 59 minutes there are %d", held)
		}
		if wait(2 * time.Minute); s.held() != 0 || s.count() != 1 {
			t.Errorf("a body that paused for an hour before its response ended with %v", s.ended)
		}
	})
}

func TestRoom_BodiesThatDoNotComeKeepOutNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 8)
		upload := func(addr string, rate int) {
			c := s.dial(addr)
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
			go io.Copy(io.Discard, c)
			go func() {
				for ; rate > 0; time.Sleep(time.Second / 2) {
					if _, err := c.Write(make([]byte, rate)); err != nil {
						return
					}
				}
			}()
		}
		upload("127.0.0.4:1000", slowest)
		for range 5 {
			upload("127.0.0.2:1000", 0)
		}
		synctest.Wait()
		wait(2 * shortPatience)
		if got := s.status(t, "127.0.0.3:1000"); got != "200" || s.count() == 0 {
			t.Errorf("another address gets %s", got)
		}
		for range 3 { // a byte now and then is not enough
			upload("127.0.0.2:1000", 1)
		}
		for i := range 100 {
			upload("127.0.0.2:1000", 1)
			if got := s.status(t, "127.0.0.3:1000"); i > 30 && got != "200" {
				t.Errorf("%d: another address gets %s", i, got)
			}
		}
		for _, why := range s.ended {
			if !strings.Contains(why, "sent too little of its body") {
				t.Error(why)
			}
		}
	})
}

func TestRoom_StreamsThatTakeNothingKeepOutNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 8)
		open := s.streams(t, "127.0.0.2:1000", nil)
		for range 6 {
			res, err := open("/long")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
		}
		wait(2 * shortPatience)
		if got := s.status(t, "127.0.0.3:1000"); got != "200" || s.count() != 1 {
			t.Errorf("another address gets %s, and %v", got, s.ended)
		}
		res, err := open("/short") // beside the others
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if b, err := io.ReadAll(res.Body); string(b) != "short" {
			t.Errorf("another stream gets %q, %v", b, err)
		}
	})
}

func TestRoom_AConnectionOfStreamsThatTakesNothingKeepsOutNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlotServer(t, 8)
		deaf := make(chan struct{})
		open := s.streams(t, "127.0.0.2:1000", deaf)
		for range 6 {
			res, err := open("/long")
			if err != nil {
				t.Fatal(err)
			}
			go io.Copy(io.Discard, res.Body)
		}
		close(deaf)
		wait(2 * shortPatience)
		for range 4 {
			s.status(t, "127.0.0.3:1000")
		}
		if got := s.status(t, "127.0.0.3:1000"); got != "200" {
			t.Errorf("another address gets %s, and %v", got, s.ended)
		}
	})
}
