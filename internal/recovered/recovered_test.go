package recovered

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
)

func TestCall_AFunctionThatPanicsOrEndsItsGoroutineHasFailed(t *testing.T) {
	failed := errors.New("failed")
	for want, fn := range map[string]func() error{
		"<nil>":                           func() error { return nil },
		"failed":                          func() error { return failed },
		"the handler panicked: a bug":     func() error { panic("a bug") },
		"the handler panicked: failed":    func() error { panic(failed) },
		"the handler ended its goroutine": func() error { runtime.Goexit(); return nil },
	} {
		err := Call("the handler", fn)
		got := "<nil>"
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("the error is %s, want %s", got, want)
		}
		if _, isPanic := err.(*panicked); isPanic != strings.Contains(want, "panicked") {
			t.Errorf("%s is a panic: %v", want, isPanic)
		}
	}
}

func brokenHandler() error { panic("a bug") }

func TestPanic_IsLoggedWithItsStackAndWhatItWasFor(t *testing.T) {
	var text bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(was)
	for _, err := range []error{nil, errors.New("failed")} {
		if Log(context.Background(), err, "kafkaonce"); text.Len() > 0 {
			t.Errorf("%v is logged: %s", err, &text)
		}
	}
	Log(context.Background(), Call("the handler", brokenHandler), "kafkaonce", "topic", "orders")
	for _, want := range []string{"level=ERROR", `msg="kafkaonce: the handler panicked"`, "topic=orders", `panic="a bug"`, "recovered.brokenHandler"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log is %s, want %s in it", &text, want)
		}
	}
}
