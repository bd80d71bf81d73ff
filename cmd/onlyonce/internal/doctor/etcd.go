package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
)

// diagnoseEtcd opens a store without the risks that its URL accepts.
func diagnoseEtcd(ctx context.Context, u storeurl.URL) (findings []onlyonce.Finding, summary string, err error) {
	client, cfg, err := u.DialEtcd(ctx, nil)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	cfg.AcceptRisks = nil
	store, err := etcdstore.Open(ctx, client, cfg)
	if err != nil {
		if findings := rejections(err); len(findings) > 0 {
			return findings, "", nil
		}
		return nil, "", fmt.Errorf("%v: %w", u, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	findings, err = store.Diagnose(ctx) // a full database does not keep a store from being opened
	if err != nil || len(findings) > 0 {
		return findings, "", err
	}
	members, err := client.MemberList(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("%v: %w", u, err)
	}
	var version string
	for _, endpoint := range client.Endpoints() {
		about, failed := client.Status(ctx, endpoint)
		if failed == nil {
			version = about.Version
			break
		}
		err = failed
	}
	if version == "" {
		return nil, "", fmt.Errorf("%v: %w", u, err)
	}
	voting := 0
	for _, m := range members.Members {
		if !m.IsLearner {
			voting++
		}
	}
	class := classEtcdCluster
	if voting < 3 {
		class = classEtcd
	}
	return nil, fmt.Sprintf("etcd %s, members: %d\n%s", version, voting, class), nil
}

// The guarantees of members that flush every change before they confirm it.
const (
	classEtcd = `guarantee class A: responses that were sent survive a crash of the process, of the
server and of the machine; no failover, because every member is needed`
	classEtcdCluster = `guarantee class A: responses that were sent survive a crash of the process, of the
members and of their machines, and a failover while most members are there`
)
