package main

import (
	"net/url"
	"os"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

// natsAccounts has a user of a store, whom a token lets in too, and one of the system
// account.
const natsAccounts = `
accounts {
  APP { jetstream: enabled, users: [{user: app, password: s3cret}] }
  SYS { users: [{user: admin, password: "s3cret&"}] }
}
system_account: SYS
`

// system is the part of a URL with the user of the system account.
const system = "system_user=admin&system_password=s3cret%26"

func TestNATS_TheCommandsForOperatorsTakeANATSURL(t *testing.T) {
	server := cmdtest.StartNATS(t, natsAccounts)
	u := "nats://app:s3cret@" + server.Address() + "/shop?" + system
	step := steps(t)
	const shown = "nats://app:xxxxx@127.0.0.1:"
	step("findings: 1", "forgotten: the stream shop, or the message that Migrate makes in it, is missing: ", "doctor", u)
	step("run onlyonce migrate", "", "records", "ls", u)
	step("run onlyonce migrate", "", "bench", u)
	step("", shown+server.Port+"/shop: created the message", "migrate", u)
	step("", shown+server.Port+"/shop: up to date\n", "migrate", u)
	step("", "no findings\nNATS 2.", "doctor", u)
	step("", ", sync_interval: always, replicas: 1\nguarantee class A: ", "doctor", u)
	step("findings: 1", "sync-interval: the servers do not show their sync_interval to this account", "doctor", "nats://app:s3cret@"+server.Address()+"/shop")
	step("findings: 2", "replicas: the stream has 1 replicas, and the store asks for 3", "doctor", "nats://app:s3cret@"+server.Address()+"/shop?replicas=3")
	step("", "checked: no key ran twice", "bench", u, "--requests", "50", "--keep", "1s")
	checkRecords(t, step, u)
	onlyRecords(t, step, "NATS", u)
	step("Authorization Violation", "", "doctor", "nats://app:s3cretive@"+server.Address())
	step("connect to the system account: ", "", "doctor", "nats://app:s3cret@"+server.Address()+"?system_user=admin&system_password=s3cretive")
	step("is not a connection to the system account", "", "doctor", "nats://app:s3cret@"+server.Address()+"/shop?system_user=app&system_password=s3cret")
}

func TestNATS_ATokenAndTLSReachAStore(t *testing.T) {
	ca := cmdtest.NewAuthority(t)
	ca.Sign("server", false)
	ca.Sign("client", false)
	server := cmdtest.StartNATS(t, "authorization { token: \"s3cret/\" }\ntls { cert_file: \""+ca.Path("server.crt")+"\", key_file: \""+ca.Path("server.key")+"\", ca_file: \""+ca.Path("authority.crt")+"\", verify: true }\n")
	at := "s3cret%2F@" + server.Address()
	files := url.Values{"tls_ca": {ca.Path("authority.crt")}, "tls_cert": {ca.Path("client.crt")}, "tls_key": {ca.Path("client.key")}}
	step := steps(t)
	step("", "tls://xxxxx@"+server.Address()+": created the message", "migrate", "tls://"+at+"?"+files.Encode())
	step("findings: 1", "sync-interval: ", "doctor", "tls://"+at+"?"+files.Encode())
	step("certificate signed by unknown authority", "", "doctor", "tls://"+at)
	if err := os.Chmod(ca.Path("client.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	step("other users of this machine can use "+ca.Path("client.key"), "", "doctor", "tls://"+at+"?"+files.Encode())
	step("", "checked: no key ran twice", "bench", "tls://"+at+"?"+files.Encode(), "--requests", "1", "--accept-risk", "file-mode", "--accept-risk", "sync-interval")
}

func TestNATS_ProxiesOnOneStoreRunACommandOnce(t *testing.T) {
	server := cmdtest.StartNATS(t, natsAccounts)
	proxiesRunACommandOnce(t, "nats://app:s3cret@"+server.Address()+"?accept_risks=sync-interval", "nats://app:xxxxx@", server.Restart)
}

func TestNATS_NoErrorShowsTheTokenOfAServerThatIsAway(t *testing.T) {
	address := cmdtest.ClosedAddress()
	step := steps(t)
	for _, u := range []string{"nats://s3cret@" + address, "nats://u:s3cret@" + address + "/shop", "tls://s3cret@" + address + "?" + system} {
		step("no servers available", "", "migrate", u)
		step("no servers available", "", "doctor", u)
		step("no servers available", "", "records", "ls", u)
		step("no servers available", "", "proxy", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--single-tenant", "--store", u)
	}
}
