package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/twmb/franz-go/pkg/kfake"
)

func TestExample_EachOrderIsShippedOnce(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	ctx, stop := context.WithCancel(t.Context())
	var shipped []string
	err = run(ctx, fake.ListenAddrs(), func(order string) {
		if shipped = append(shipped, order); order == "a table" {
			stop()
		}
	})
	if want := []string{"a lamp", "a chair", "a table"}; err != nil || !slices.Equal(shipped, want) {
		t.Errorf("shipped %q, %v", shipped, err)
	}
}

func TestExample_ABrokerThatDoesNotRespondIsNamed(t *testing.T) {
	address := "127.0.0.1:" + testserver.FreePort()
	err := run(t.Context(), []string{address}, func(string) {})
	if want := "no broker responds at " + address; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q in it", err, want)
	}
}
