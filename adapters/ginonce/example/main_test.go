package main

import (
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestExample_ARepeatGetsTheFirstResponse(t *testing.T) {
	gin.SetMode(gin.TestMode)
	adaptertest.RunExample(t, newEngine(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})))
}
