package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimit_AMessageIsLoggedOnceInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limit
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {0, false}, {10*time.Second - 1, false}, {1, true}, {9 * time.Second, false}, {time.Hour, true}} {
			if time.Sleep(c.after); l.Allow() != c.want {
				t.Errorf("%v later: %v, want %v", c.after, !c.want, c.want)
			}
		}
	})
}

func TestLimits_OfEveryCauseSomeAreLoggedAndTheRestIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		count := func(n int, text func(int) string) (logged, left int) {
			for i := range n {
				if more, ok := l.Allow("POST /orders", text(i)); ok {
					logged, left = logged+1, left+more
				}
			}
			return logged, left
		}
		flood := func(i int) string { return fmt.Sprintf("read tcp 127.0.0.1:%d: reset", i) }
		other := func(int) string { return "the upstream is away" }
		if logged, left := count(1000, flood); logged != 10 || left != 0 {
			t.Errorf("of 1000, %d are logged, and %d are told as left out", logged, left)
		}
		if logged, _ := count(3, other); logged != 3 {
			t.Errorf("of 3 with another cause, %d are logged", logged)
		}
		time.Sleep(limitEvery)
		if logged, left := count(1, flood); logged != 1 || left != 990 {
			t.Errorf("ten seconds later, %d are logged, and %d are told as left out", logged, left)
		}
		if logged, _ := count(1_000_000, func(i int) string { return string([]rune{rune(0x4e00 + i%1000), rune(0x4e00 + i/1000)}) }); logged > 10*(mostCauses+1) {
			t.Errorf("of a million with invented causes, %d are logged", logged)
		}
		if n := len(l.causes); n > mostCauses+1 {
			t.Errorf("%d causes are remembered", n)
		}
	})
}

func TestServerErrors_ClientsDoNotFillTheLogNorHideOtherFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		errors := ServerErrors(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 100 {
			errors.Printf("ignoring invalid trailer %q", string(rune(0x4e00+i)))
			errors.Printf("http2: received GOAWAY [FrameHeader GOAWAY len=%d], starting graceful shutdown", i)
		}
		if n := strings.Count(out.String(), "\n"); n != 2*limitEach {
			t.Errorf("of 100 trailers and 100 frames, %d are logged, want %d", n, 2*limitEach)
		}
		for i := range 500 {
			invented := string(rune(0x4e00 + i))
			errors.Printf("http2: server: error reading preface from client 127.0.0.1:%d: bogus greeting %q", i, invented)
			errors.Printf("http2: server: error reading preface from client [::1]:%d: bogus greeting %q", i, invented)
		}
		if n := strings.Count(out.String(), "bogus greeting"); n != limitEach {
			t.Errorf("of 1000 connections that break, %d are logged, want %d", n, limitEach)
		}
		for _, other := range []string{
			"http2: server connection error from 127.0.0.1:80: connection error: FRAME_SIZE_ERROR",
			"http: Accept error: accept tcp 127.0.0.1:80: too many open files",
		} {
			if errors.Print(other); !strings.Contains(out.String(), other) {
				t.Errorf("a failure with another cause is not logged: %s", other)
			}
		}
		out.Reset()
		time.Sleep(limitEvery)
		errors.Print("http2: server: error reading preface from client 127.0.0.1:1: bogus greeting")
		if got := out.String(); !strings.Contains(got, "not_logged=990") || !strings.Contains(got, "level=WARN") || strings.Count(got, "\n") != 1 {
			t.Errorf("ten seconds later: %s", got)
		}
	})
}
