package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// The names of findings.
const (
	RiskAuth      = "auth"
	RiskCorrupt   = "corrupt"
	RiskForgotten = "forgotten"
	RiskMembers   = "members"
	RiskSpace     = "space"
)

// risks can be accepted. A member that is too old can't: its leases may end early. Neither
// can missing permissions: the store would not work.
var risks = []string{RiskCorrupt, RiskForgotten, RiskMembers, RiskSpace}

// oldest is the oldest version of etcd that is supported: before, a leader that was replaced
// could end leases, and did not notice that it was replaced when it was asked about one.
const oldest = "3.5.14"

// spaceLeft is how much of its quota a member should have left, in parts.
const spaceLeft = 10

// Diagnose finds settings of the cluster that would break the promise, whether it is full,
// and whether it has forgotten its records.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	findings, err := s.diagnose(ctx)
	return findings, wrap("diagnose", err)
}

func (s *Store) diagnose(ctx context.Context) (findings []onlyonce.Finding, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		findings, err = s.examine(ctx)
		return err
	})
	return findings, err
}

func (s *Store) examine(ctx context.Context) (findings []onlyonce.Finding, err error) {
	members, err := s.status(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		findings = append(findings, m.judge()...)
	}
	var alarms *clientv3.AlarmResponse
	if err := request(ctx, func(ctx context.Context) (err error) { alarms, err = s.client.AlarmList(ctx); return err }); err != nil {
		return nil, err
	}
	wrong, corrupt := judgeAlarms(alarms)
	findings = append(findings, wrong...)
	if corrupt {
		return findings, nil // it does nothing else
	}
	switch err := request(ctx, s.permitted); {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return append(findings, engine.NewFinding(RiskAuth,
			fmt.Sprintf("the user %s may not read and write all keys under %s/", cmp.Or(s.client.Username, "of the client"), s.keys.prefix),
			fmt.Sprintf("run etcdctl role grant-permission ROLE --prefix=true readwrite %s/ for a role of the user", s.keys.prefix))), nil
	case err != nil && !errors.Is(err, errNoSpace):
		return nil, err
	}
	var list *clientv3.MemberListResponse
	if err := request(ctx, func(ctx context.Context) (err error) { list, err = s.client.MemberList(ctx); return err }); err != nil {
		return nil, err
	}
	voting := 0
	for _, m := range list.Members {
		if !m.IsLearner {
			voting++
		}
	}
	if voting < s.members {
		findings = append(findings, engine.NewFinding(RiskMembers,
			fmt.Sprintf("the cluster has %d voting members, and the store asks for %d: a lost member takes records with it, and their commands run again", voting, s.members),
			"add members to the cluster, an odd number in all"))
	}
	_, err = s.clock.get(ctx)
	if errors.Is(err, ErrForgotten) {
		return append(findings, engine.NewFinding(RiskForgotten,
			fmt.Sprintf("the key %s, which Migrate makes, is missing: etcd is new, or it has forgotten its records, and commands that ran would run again", s.keys.clock()),
			"if it is not new, find out why; then run onlyonce migrate, or call etcdstore.Migrate, once")), nil
	}
	return findings, err
}

// permitted returns an error unless the client's user may write the keys of the store. Its
// transaction changes nothing, but etcd checks all that it might do.
func (s *Store) permitted(ctx context.Context) error {
	p := s.keys.place([32]byte{})
	_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(s.keys.clock()), "<", 0)).
		Then(clientv3.OpPut(s.keys.clock(), ""), clientv3.OpPut(p.head, ""), clientv3.OpPut(p.rest, "")).
		Else(clientv3.OpGet(s.keys.records(), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())).Commit()
	return err
}

// A memberStatus is what a member says about itself.
type memberStatus struct {
	endpoint string
	*clientv3.StatusResponse
}

// status returns what the members say that can be reached, at least one.
func (s *Store) status(ctx context.Context) (members []memberStatus, err error) {
	for _, endpoint := range s.client.Endpoints() {
		var r *clientv3.StatusResponse
		failed := request(ctx, func(ctx context.Context) (err error) { r, err = s.client.Status(ctx, endpoint); return err })
		if failed != nil {
			err = cmp.Or(err, failed)
			continue
		}
		members = append(members, memberStatus{endpoint, r})
	}
	if len(members) > 0 {
		return members, nil
	}
	return nil, err
}

func (m *memberStatus) judge() (findings []onlyonce.Finding) {
	if engine.OlderThan(m.Version, oldest) {
		findings = append(findings, engine.NewFinding(engine.RiskOldVersion,
			fmt.Sprintf("%s is etcd %s, whose leases may end early, and %s is the oldest version that is supported", m.endpoint, m.Version, oldest), "upgrade the member"))
	}
	if m.DbSizeQuota > 0 && m.DbSize > m.DbSizeQuota-m.DbSizeQuota/spaceLeft {
		findings = append(findings, engine.NewFinding(RiskSpace,
			fmt.Sprintf("the database of %s has %d of at most %d bytes: when it is full, claims fail", m.endpoint, m.DbSize, m.DbSizeQuota),
			"compact and defragment the members, or raise quota-backend-bytes"))
	}
	return findings
}

func judgeAlarms(r *clientv3.AlarmResponse) (findings []onlyonce.Finding, corrupt bool) {
	var full, differs []string
	for _, a := range r.Alarms {
		id := fmt.Sprintf("%x", a.MemberID)
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			full = append(full, id)
		case etcdserverpb.AlarmType_CORRUPT:
			differs = append(differs, id)
		}
	}
	slices.Sort(full)
	slices.Sort(differs)
	if len(full) > 0 {
		findings = append(findings, engine.NewFinding(RiskSpace,
			fmt.Sprintf("the database of %s is full (alarm NOSPACE): claims fail", strings.Join(full, ", ")),
			"compact and defragment the members or raise quota-backend-bytes, then run etcdctl alarm disarm"))
	}
	if len(differs) > 0 {
		findings = append(findings, engine.NewFinding(RiskCorrupt,
			fmt.Sprintf("the data of %s differs from that of the other members (alarm CORRUPT): records may be missing, and their commands run again", strings.Join(differs, ", ")),
			"restore the member from the others, then run etcdctl alarm disarm"))
	}
	return findings, len(differs) > 0
}
