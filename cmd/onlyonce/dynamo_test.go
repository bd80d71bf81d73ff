package main

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/dynalite"
)

// startDynalite starts an emulator of DynamoDB and returns the URL of a store on it, and the
// same without the risk that the emulator has.
func startDynalite(t *testing.T) (u, bare string) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	bare = "dynamodb://eu-central-1/shop?endpoint=http://" + dynalite.Start(t).Address
	return bare + "&accept_risks=ttl", bare
}

func TestDynamo_TheCommandsForOperatorsTakeADynamoDBURL(t *testing.T) {
	u, bare := startDynalite(t)
	const shown = "dynamodb://eu-central-1/shop"
	step := steps(t)
	step("findings: 1", "forgotten: the table shop, or the item \"made\" that Migrate makes in it, is missing: ", "doctor", u)
	step("run onlyonce migrate", "", "records", "ls", u)
	step("run onlyonce migrate", "", "bench", u)
	step("", shown+": created the item", "migrate", u)
	step("", shown+" is up to date\n", "migrate", u)
	step("findings: 1", "ttl: the time to live of the table shop is not on", "doctor", bare)
	step("findings: 1", "ttl: the time to live of the table shop is not on", "doctor", u)
	step("ttl: the time to live", "", "records", "ls", bare)
	step("", "checked: no key ran twice", "bench", u, "--requests", "50", "--keep", "1s")
	settled(t, u, "order-17")
	step("", "order-17", "records", "ls", u)
	step("", "made", "records", "show", u, "--key", "order-17")
	step("", "deleted", "records", "rm", u, "--key", "order-17", "--yes")
	step("no such record", "", "records", "show", u, "--key", "order-17")
	onlyRecords(t, step, "DynamoDB", u)
}

func TestDynamo_ProxiesOnOneStoreRunACommandOnce(t *testing.T) {
	u, _ := startDynalite(t)
	up := newUpstreamServer(t)
	args := []string{"proxy", "--listen", "127.0.0.1:0", "--upstream", up.URL, "--single-tenant", "--store", u}
	if _, err := command(t, args...); err == nil || !strings.Contains(err.Error(), "run onlyonce migrate") {
		t.Fatalf("no table: %v", err)
	}
	if _, err := command(t, "migrate", u); err != nil {
		t.Fatal(err)
	}
	one, other := start(t, args...), start(t, args...)
	first, repeat := one.send("k", "body"), other.send("k", "body")
	if first.status != 201 || repeat.status != 201 || repeat.body != first.body || up.runs() != 1 {
		t.Errorf("%+v, then %+v, %d runs", first, repeat, up.runs())
	}
	one.logs(t, `"store":"dynamodb://eu-central-1/shop"`)
	if strings.Contains(one.log.String(), "s3cret") {
		t.Errorf("the log shows the secret: %s", one.log.String())
	}
}

func TestDynamo_WithoutCredentialsOrAServerTheErrorSaysSo(t *testing.T) {
	_, bare := startDynalite(t)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	step := steps(t)
	for _, command := range [][]string{{"migrate"}, {"doctor"}, {"records", "ls"}} {
		step("credentials", "", append(command, bare)...)
	}
}
