package main

import (
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
	step("", shown+": up to date\n", "migrate", u)
	step("findings: 1", "ttl: the time to live of the table shop is not on", "doctor", bare)
	step("findings: 1", "ttl: the time to live of the table shop is not on", "doctor", u)
	step("ttl: the time to live", "", "records", "ls", bare)
	step("", "checked: no key ran twice", "bench", u, "--requests", "50", "--keep", "1s")
	checkRecords(t, step, u)
	onlyRecords(t, step, "DynamoDB", u)
}

func TestDynamo_ProxiesOnOneStoreRunACommandOnce(t *testing.T) {
	u, _ := startDynalite(t)
	proxiesRunACommandOnce(t, u, `dynamodb://eu-central-1/shop"`, nil)
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
