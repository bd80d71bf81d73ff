package etcdstore

import (
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrOtherCluster says that a member has responded that belongs to another cluster than the
// one on which the store was opened. Its response does not count, and the request is sent
// again until a member of the right cluster responds or the time of the call is over.
// Otherwise, commands would run once in each cluster. After a cluster was replaced, or its
// data was lost and Migrate was called while the store was idle, open the store again.
var ErrOtherCluster = errors.New("a member of another etcd cluster has responded than that on which the store was opened: name only members of one cluster, and restart the program if the cluster was replaced on purpose")

// A cluster identifies the cluster from which all responses must come. Its ID alone does not tell it from
// others: etcd derives the ID from the peer URLs with which the cluster was started. But each
// call of Migrate gives the clock another epoch.
type cluster struct {
	clock string // the key

	mu        sync.Mutex
	id        uint64   // 0: nothing has responded yet
	epoch     [16]byte // of the clock; zero: it has not been read
	forgotten bool     // there was no clock when it was read last, so Migrate may make another
}

// A response is a response of etcd, which has a header.
type response interface {
	*clientv3.AlarmResponse | *clientv3.GetResponse | *clientv3.LeaseGrantResponse | *clientv3.LeaseKeepAliveResponse |
		*clientv3.LeaseTimeToLiveResponse | *clientv3.MemberListResponse | *clientv3.TxnResponse
}

// check returns an ErrOtherCluster unless a response is from the cluster.
func check[R response](c *cluster, r R) error {
	switch r := any(r).(type) {
	case *clientv3.AlarmResponse:
		return c.check(r.Header, nil)
	case *clientv3.GetResponse:
		return c.check(r.Header, c.find(r.Kvs))
	case *clientv3.LeaseGrantResponse:
		return c.check(r.ResponseHeader, nil)
	case *clientv3.LeaseKeepAliveResponse:
		return c.check(r.ResponseHeader, nil)
	case *clientv3.LeaseTimeToLiveResponse:
		return c.check(r.ResponseHeader, nil)
	case *clientv3.MemberListResponse:
		return c.check(r.Header, nil)
	case *clientv3.TxnResponse:
		for _, part := range r.Responses {
			if clock := c.find(part.GetResponseRange().GetKvs()); clock != nil {
				return c.check(r.Header, clock)
			}
		}
		return c.check(r.Header, nil)
	}
	return nil
}

// find returns the clock's key-value pair if it was read, or nil.
func (c *cluster) find(read []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(read) == 1 && string(read[0].Key) == c.clock {
		return read[0]
	}
	return nil
}

// check returns an ErrOtherCluster unless a header and the clock, if there is one, are the
// cluster's. The first ones are.
func (c *cluster) check(h *etcdserverpb.ResponseHeader, clock *mvccpb.KeyValue) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == 0 {
		c.id = h.GetClusterId()
	}
	if h.GetClusterId() != c.id {
		return fmt.Errorf("%w (the member %x is of the cluster %x, and the store of %x)", ErrOtherCluster, h.GetMemberId(), h.GetClusterId(), c.id)
	}
	if clock == nil {
		return nil
	}
	v, err := parseClock(clock.Value)
	switch {
	case err != nil:
		return nil // the caller that uses the clock returns the error
	case v.epoch != c.epoch && c.epoch != [16]byte{} && !c.forgotten:
		return fmt.Errorf("%w (its key %s was made by another call of Migrate)", ErrOtherCluster, c.clock)
	}
	c.epoch, c.forgotten = v.epoch, false
	return nil
}

// forget lets the clock be another one when it is read next.
func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten = true
}
