package main

import (
	"net/url"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/etcdserver"
)

// startEtcd starts an etcd server on which the user app with the password s3cret& may write
// all keys of the store shop.
func startEtcd(t *testing.T) *etcdserver.Server {
	t.Helper()
	server := cmdtest.StartEtcd(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Client}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	for _, name := range []string{"root", "app"} {
		_, err := client.RoleAdd(ctx, name)
		if err == nil {
			_, err = client.UserAdd(ctx, name, "s3cret&")
		}
		if err == nil {
			_, err = client.UserGrantRole(ctx, name, name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = client.RoleGrantPermission(ctx, "app", "shop/", clientv3.GetPrefixRangeEnd("shop/"), clientv3.PermissionType(clientv3.PermReadWrite))
	if err == nil {
		_, err = client.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func TestEtcd_TheCommandsForOperatorsTakeAnEtcdURL(t *testing.T) {
	server := startEtcd(t)
	u := "etcd://app:s3cret%26@" + server.Client + "/shop"
	shown := "etcd://app:xxxxx@" + server.Client + "/shop"
	step := steps(t)
	step("findings: 1", "forgotten: the key shop/clock, which Migrate makes, is missing: ", "doctor", u)
	step("run onlyonce migrate", "", "records", "ls", u)
	step("run onlyonce migrate", "", "bench", u)
	step("", shown+": created the key", "migrate", u)
	step("", shown+": up to date\n", "migrate", u)
	step("", "no findings\netcd 3.", "doctor", u)
	step("", ", members: 1\nguarantee class A: ", "doctor", u)
	step("findings: 1", "members: the cluster has 1 voting members, and the store asks for 3", "doctor", u+"?members=3&accept_risks=members")
	step("findings: 1", "auth: the user app may not read and write all keys under onlyonce/", "doctor", "etcd://app:s3cret%26@"+server.Client)
	step("", "checked: no key ran twice", "bench", u, "--requests", "50", "--keep", "1s")
	checkRecords(t, step, u)
	onlyRecords(t, step, "etcd", u)
	step("invalid user ID or password", "", "doctor", "etcd://app:s3cretive@"+server.Client+"/shop")
	step("user name is empty", "", "doctor", "etcd://"+server.Client+"/shop")
}

func TestEtcd_TLSReachesAStore(t *testing.T) {
	ca := cmdtest.NewAuthority(t)
	ca.Sign("server", false)
	ca.Sign("client", false)
	server := cmdtest.StartEtcd(t, "--cert-file", ca.Path("server.crt"), "--key-file", ca.Path("server.key"), "--trusted-ca-file", ca.Path("authority.crt"), "--client-cert-auth")
	files := url.Values{"tls_ca": {ca.Path("authority.crt")}, "tls_cert": {ca.Path("client.crt")}, "tls_key": {ca.Path("client.key")}}
	step := steps(t)
	u := "etcds://" + server.Client + "?" + files.Encode()
	step("", "etcds://"+server.Client+": created the key", "migrate", u)
	step("", "no findings", "doctor", u)
	step("certificate signed by unknown authority", "", "doctor", "etcds://"+server.Client)
	if err := os.Chmod(ca.Path("client.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	step("other users of this machine can use "+ca.Path("client.key"), "", "doctor", u)
	step("", "checked: no key ran twice", "bench", u, "--requests", "1", "--accept-risk", "file-mode")
}

func TestEtcd_ProxiesOnOneStoreRunACommandOnce(t *testing.T) {
	server := startEtcd(t)
	proxiesRunACommandOnce(t, "etcd://app:s3cret%26@"+server.Client+"/shop", "etcd://app:xxxxx@", server.Restart)
}

func TestEtcd_NoErrorShowsThePasswordOfAServerThatIsAway(t *testing.T) {
	address := cmdtest.ClosedAddress()
	step := steps(t)
	for _, u := range []string{"etcd://u:s3cret@" + address + "/shop", "etcds://u:s3cret@" + address, "etcd://" + address} {
		const fails = "no member can be reached: "
		step(fails, "", "migrate", u)
		step(fails, "", "doctor", u)
		step(fails, "", "records", "ls", u)
		step(fails, "", "proxy", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--single-tenant", "--store", u)
	}
}
