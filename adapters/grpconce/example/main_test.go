package main

import "testing"

func TestExample_TheRetryGetsTheFirstResponse(t *testing.T) {
	if text, err := run(); text != "charge 1 of 5" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
}
