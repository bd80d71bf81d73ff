package etcdstore_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func TestOpen_ANilClientPanicsAndSaysWhatToPass(t *testing.T) {
	hazard.CheckPanics(t, "etcdstore: there is no client: pass what clientv3.New returned",
		func() { _, _ = etcdstore.Open(t.Context(), nil, etcdstore.Config{}) },
		func() { _, _ = etcdstore.Migrate(t.Context(), nil, etcdstore.Config{}) })
}
