package main

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce"
	"github.com/onlyonce-go/onlyonce/adapters/lambdaonce/internal/gateway"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestExample_ARepeatGetsTheFirstResponse(t *testing.T) {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	adaptertest.RunExample(t, gateway.New(lambdaonce.HTTPHandler(newMux(guard)), gateway.HTTPv2))
}
