package main

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"onlyonce": main, "seed": seed, "sql": execSQL})
}

func TestCommand_Line(t *testing.T) {
	needs.Time(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else every run takes a second with -race
			return nil
		},
	})
}
