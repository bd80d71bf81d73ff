package main

import (
	"context"
	"strings"
	"testing"
)

func TestStart_ReturnsTheFirstAddressThatAServerPrints(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	url, err := start(ctx, t.TempDir(), "sh", "-c", "echo hello; echo listening on http://127.0.0.1:1; echo upstream http://127.0.0.1:2; exec sleep 600")
	if url != "http://127.0.0.1:1" || err != nil {
		t.Errorf("got %q, %v", url, err)
	}
}

func TestStart_AServerThatEndsSaysWhy(t *testing.T) {
	_, err := start(t.Context(), t.TempDir(), "sh", "-c", "echo nothing; echo the port is taken >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "sh has ended: the port is taken") {
		t.Errorf("got %v", err)
	}
}

func TestOutput_TheErrorOfAProgramHasWhatItPrinted(t *testing.T) {
	_, err := output(t.Context(), "", "sh", "-c", "echo $((6 * 7)) >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3\n42\n") {
		t.Errorf("got %v", err)
	}
}
