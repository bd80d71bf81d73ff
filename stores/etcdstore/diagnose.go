package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
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
	RiskMixed     = engine.RiskMixed
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
	members, findings, err := s.status(ctx)
	if err != nil || len(findings) > 0 {
		return findings, err
	}
	for _, m := range members {
		findings = append(findings, m.findings()...)
	}
	alarms, err := request(ctx, s.cluster, func(ctx context.Context) (*clientv3.AlarmResponse, error) { return s.client.AlarmList(ctx) })
	if err != nil {
		return nil, err
	}
	wrong, corrupt := judgeAlarms(alarms)
	findings = append(findings, wrong...)
	if corrupt {
		return findings, nil // it does nothing else
	}
	switch _, err := request(ctx, s.cluster, s.permitted); {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return append(findings, engine.NewFinding(RiskAuth,
			fmt.Sprintf("the user %s may not read and write all keys under %s/", cmp.Or(s.client.Username, "of the client"), s.keys.prefix),
			fmt.Sprintf("run etcdctl role grant-permission ROLE --prefix=true readwrite %s/ for a role of the user", s.keys.prefix))), nil
	case err != nil && !errors.Is(err, errNoSpace):
		return nil, err
	}
	list, err := request(ctx, s.cluster, func(ctx context.Context) (*clientv3.MemberListResponse, error) { return s.client.MemberList(ctx) })
	if err != nil {
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
func (s *Store) permitted(ctx context.Context) (*clientv3.TxnResponse, error) {
	p := s.keys.place([32]byte{})
	return s.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(s.keys.clock()), "<", 0)).
		Then(clientv3.OpPut(s.keys.clock(), ""), clientv3.OpPut(p.head, ""), clientv3.OpPut(p.rest, "")).
		Else(clientv3.OpGet(s.keys.records(), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())).Commit()
}

// A memberStatus holds the status that a member reports.
type memberStatus struct {
	endpoint string
	*clientv3.StatusResponse
	known bool             // the member has shown the clock
	clock *mvccpb.KeyValue // the clock; nil: there is none
}

// status returns the status of each member that can be reached, at least one, and a finding if they
// belong to more than one cluster.
func (s *Store) status(ctx context.Context) (members []memberStatus, findings []onlyonce.Finding, err error) {
	for range 2 { // Migrate may make the clock after one member was asked, and before another is
		members = members[:0]
		for _, endpoint := range s.client.Endpoints() {
			m, failed := s.ask(ctx, endpoint)
			if failed != nil {
				err = cmp.Or(err, failed)
				continue
			}
			members = append(members, m)
		}
		if len(members) == 0 {
			return nil, nil, err
		}
		if findings = s.compare(members); len(findings) == 0 {
			return members, nil, s.adopt(members)
		}
	}
	return nil, findings, nil
}

// adopt makes the members' cluster and clock those of the store, unless it has others.
func (s *Store) adopt(members []memberStatus) error {
	for i := range members {
		if err := s.cluster.check(members[i].Header, members[i].clock); err != nil {
			return err
		}
	}
	return nil
}

// ask asks the member of an endpoint how it is, and for the clock. A member that can't ask the
// others does not show it.
func (s *Store) ask(ctx context.Context, endpoint string) (m memberStatus, err error) {
	try, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), patience)
	defer cancel()
	m.endpoint = endpoint
	if m.StatusResponse, err = s.client.Status(try, endpoint); err != nil {
		if ctx.Err() != nil {
			return m, ctx.Err()
		}
		return m, classify(err)
	}
	conn, err := s.client.Dial(endpoint)
	if err != nil {
		return m, classify(err)
	}
	defer conn.Close()
	got, failed := etcdserverpb.NewKVClient(conn).Range(try, &etcdserverpb.RangeRequest{Key: []byte(s.keys.clock())})
	if failed != nil {
		return m, nil
	}
	m.known = true
	if len(got.Kvs) > 0 {
		m.clock = got.Kvs[0]
	}
	return m, nil
}

// compare returns a finding if members belong to different clusters. Clusters that were started
// with the same peer URLs have the same ID, but not the same clock.
func (s *Store) compare(members []memberStatus) []onlyonce.Finding {
	const problem = "each cluster keeps records of its own, so a command would run once in each"
	const fix = "name only members of one cluster"
	a := &members[0]
	for i := range members {
		b := &members[i]
		if a.Header.ClusterId != b.Header.ClusterId {
			return []onlyonce.Finding{engine.NewFinding(RiskMixed, fmt.Sprintf("%s belongs to the cluster %x and %s to the cluster %x: %s",
				a.endpoint, a.Header.ClusterId, b.endpoint, b.Header.ClusterId, problem), fix)}
		}
		if !a.known {
			a = b
		}
		if b.known && a.epoch() != b.epoch() {
			return []onlyonce.Finding{engine.NewFinding(RiskMixed, fmt.Sprintf("%s and %s belong to two clusters with the ID %x, because the key %s is %s in one and %s in the other: %s",
				a.endpoint, b.endpoint, b.Header.ClusterId, s.keys.clock(), a.epoch(), b.epoch(), problem), fix)}
		}
	}
	return nil
}

// epoch tells the clock that a member has from others.
func (m *memberStatus) epoch() string {
	if m.clock == nil {
		return "missing"
	}
	v, err := parseClock(m.clock.Value)
	if err != nil {
		return "damaged"
	}
	return fmt.Sprintf("%x", v.epoch)
}

func (m *memberStatus) findings() (findings []onlyonce.Finding) {
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
