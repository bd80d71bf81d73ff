package main

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestExample_ARepeatGetsTheFirstResponse(t *testing.T) {
	adaptertest.RunExample(t, newEcho(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})))
}
