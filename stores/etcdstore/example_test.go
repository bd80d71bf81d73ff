package etcdstore_test

import (
	"context"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
)

// The cluster was set up once, with Migrate.
func ExampleOpen() {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"etcd-1:2379", "etcd-2:2379", "etcd-3:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := etcdstore.Open(ctx, client, etcdstore.Config{Members: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	guard := onlyonce.New(store, onlyonce.Config{})
	charge := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "charge", Key: "8c1f"}, Fingerprint: onlyonce.Fingerprint([]byte("17 EUR"))}
	result, err := onlyonce.Do(ctx, guard, charge, func(context.Context) (string, error) {
		return "ch_1", nil
	})
	log.Println(result.Value, result.Replayed, err)
}
