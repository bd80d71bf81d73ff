package servertest

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// wants wants Open to return an error.
func wants(t *testing.T, cfg etcdstore.Config, client *clientv3.Client, want string) {
	t.Helper()
	if _, err := etcdstore.Open(t.Context(), client, cfg); !contains(err, want) {
		t.Errorf("the error is %v, want %q in it", err, want)
	}
}

func TestOpen_RejectsWhatBreaksThePromise(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, 1)...)
	wants(t, etcdstore.Config{}, client, "forgotten: the key onlyonce/clock, which Migrate makes, is missing")
	open(t, client, etcdstore.Config{AcceptRisks: []string{etcdstore.RiskForgotten}})
	migrate(t, client, etcdstore.Config{})
	wants(t, etcdstore.Config{Members: 3}, client, "members: the cluster has 1 voting members, and the store asks for 3")
	open(t, client, etcdstore.Config{Members: 3, AcceptRisks: []string{etcdstore.RiskMembers}})
	for want, cfg := range map[string]etcdstore.Config{
		`there is no risk "member"`:         {AcceptRisks: []string{"member"}},
		`there is no risk "server-version"`: {AcceptRisks: []string{"server-version"}},
		"begins or ends with a slash":       {Prefix: "a/"},
		"-1 Members":                        {Members: -1},
		"may not be negative":               {Timeout: -1},
	} {
		wants(t, cfg, client, want)
	}

	alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 1, Alarm: etcdserverpb.AlarmType_CORRUPT}
	if _, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	wants(t, etcdstore.Config{}, client, "corrupt: the data of 1 differs")
}

func TestOpen_RejectsAUserWhoMayNotWriteAllKeys(t *testing.T) {
	t.Parallel()
	servers := start(t, 1)
	root := connect(t, servers...)
	migrate(t, root, etcdstore.Config{})
	ctx := t.Context()
	role := func(name, permits string) {
		t.Helper()
		_, err := root.RoleAdd(ctx, name)
		if err == nil {
			_, err = root.UserAdd(ctx, name, name)
		}
		if err == nil {
			_, err = root.UserGrantRole(ctx, name, name)
		}
		if err == nil && permits != "" {
			_, err = root.RoleGrantPermission(ctx, name, permits, clientv3.GetPrefixRangeEnd(permits), clientv3.PermissionType(clientv3.PermReadWrite))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	role("root", "")
	role("app", "onlyonce/")
	role("other", "onlyonce/records/")
	if _, err := root.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	user := func(name string) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{servers[0].Client}, Username: name, Password: name, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	wants(t, etcdstore.Config{}, user("other"), "auth: the user other may not read and write all keys under onlyonce/")
	s := open(t, user("app"), patient)
	hazard.Run(t, s, "k")
	if findings, err := s.Diagnose(ctx); err != nil || len(findings) > 0 {
		t.Errorf("the findings are %v, error %v", findings, err)
	}
}
