package redisstore_test

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// checkAddresses wants the addresses of a URL to be rejected, or not.
func checkAddresses(t *testing.T, url string, rejected bool) {
	t.Helper()
	o, _, err := redisstore.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	err = redisstore.CheckAddresses(t.Context(), o)
	if is := err != nil && strings.Contains(err.Error(), "mixed-servers: "+o.InitAddress[0]+" and "+o.InitAddress[1]+" do not lead"); is != rejected || err != nil && !rejected {
		t.Errorf("%s: the error is %v", url, err)
	}
}

func TestCheckAddresses_RejectsNodesOfTwoClusters(t *testing.T) {
	t.Parallel()
	var alone []string
	for range 2 {
		node := startRedis(t, "--cluster-enabled", "yes")
		do(t, node.nodeClient(t), "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
		alone = append(alone, node.Address())
	}
	checkAddresses(t, "redis://"+strings.Join(alone, ","), true)
	var nodes []string
	for _, node := range startCluster(t) {
		nodes = append(nodes, node.Address())
	}
	checkAddresses(t, "redis://"+strings.Join(nodes, ","), false)
	checkAddresses(t, "redis://"+nodes[0]+","+alone[0], true)
	checkAddresses(t, "redis://"+nodes[0]+",127.0.0.1:1", false) // it is down
}

func TestCheckAddresses_NeedsOnlyTheDocumentedPermissions(t *testing.T) {
	t.Parallel()
	var clients []rueidis.Client
	var addresses []string
	for range 2 {
		node := startRedis(t, "--cluster-enabled", "yes")
		c := node.nodeClient(t)
		do(t, c, append([]string{"ACL", "SETUSER", "app"}, strings.Fields(documented)...)...)
		clients, addresses = append(clients, c), append(addresses, node.Address())
	}
	url := "redis://app:secret@" + strings.Join(addresses, ",")
	checkAddresses(t, url, true)
	do(t, clients[1], "ACL", "SETUSER", "app", "-cluster|nodes")
	o, _, err := redisstore.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := redisstore.CheckAddresses(t.Context(), o); err == nil || !strings.Contains(err.Error(), "lacks a permission that docs/stores.md lists: NOPERM") {
		t.Errorf("a user who may not list the nodes: %v", err)
	}
}

func TestCheckAddresses_RejectsSentinelsThatWatchDifferentServers(t *testing.T) {
	t.Parallel()
	primary := startRedis(t)
	await(t, startRedis(t, "--replicaof", "127.0.0.1", primary.Port).client(t), "master_link_status:up", "INFO", "replication")
	_, url := startSentinels(t, primary)
	checkAddresses(t, url, false)
	var addresses []string
	for range 2 {
		s := started(t)(redisserver.StartSentinel("sentinel monitor shop 127.0.0.1 " + startRedis(t).Port + " 1"))
		addresses = append(addresses, s.Address())
	}
	checkAddresses(t, "redis://"+strings.Join(addresses, ",")+"?master_set=shop", true)
}
