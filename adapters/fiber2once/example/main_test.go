package main

import (
	"net"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestExample_ARepeatGetsTheFirstResponse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app := newApp(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}))
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(l) }()
	adaptertest.RunExampleAt(t, "http://"+l.Addr().String())
	if err := app.Shutdown(); err != nil {
		t.Error(err)
	}
	<-ended
}
