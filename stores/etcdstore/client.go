package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
)

// ErrForgotten says that etcd has no clock of the store although Migrate was called: it has
// lost its data, or somebody deleted the store's keys. No new command is run until Migrate
// is called again.
var ErrForgotten = errors.New("etcd has forgotten the records of the store, or has never had any: find out why, then call Migrate once")

// errTooLarge is the error for a record that etcd does not accept.
var errTooLarge = fmt.Errorf("%w: the record is larger than etcd's max-request-bytes or the client's MaxCallSendMsgSize, and nothing was written: store less, or raise the limit", onlyonce.ErrTooLarge)

// errNoSpace is why a full etcd writes nothing.
var errNoSpace = errors.New("etcd's database has reached its quota-backend-bytes (alarm NOSPACE), and nothing was written: compact and defragment it or raise the quota, then disarm the alarm with etcdctl alarm disarm")

// errConflict says that a transaction changed nothing, because the record or the clock is
// another than expected.
var errConflict = errors.New("the record has changed meanwhile")

// errLearner is the response of a member that does not vote. The next request may reach another one.
var errLearner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// An unreachable error says that no member has answered. Asking again may help. A request
// that was in doubt may have taken effect.
type unreachable struct {
	error
	doubt bool
}

func (e unreachable) Unwrap() error { return e.error }

// patience is how long one request may take. A call makes further ones.
const patience = 2 * time.Second

// resends is how many times a request is sent again at once that a member of another cluster
// has answered. The client asks one member after the other.
const resends = 4

// request sends one request, and returns its response if that is from the store's cluster. Its
// error converts an error of the client to an error of a store.
func request[R response](ctx context.Context, c *cluster, send func(ctx context.Context) (R, error)) (r R, err error) {
	try, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), patience)
	defer cancel()
	for n := 0; ; n++ {
		if r, err = send(try); err == nil {
			err = check(c, r)
		}
		// Another cluster does not have the leases of this one, either.
		if n == resends || !errors.Is(err, ErrOtherCluster) && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			break
		}
	}
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return r, ctx.Err()
	}
	return r, classify(err)
}

// classify returns the store's error for an error of the client.
func classify(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return errTooLarge
	case errors.Is(err, rpctypes.ErrNoSpace):
		return errNoSpace
	case errors.Is(err, rpctypes.ErrLeaseNotFound), errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, ErrOtherCluster):
		return err
	case errors.Is(err, rpctypes.ErrTooManyRequests), errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrAuthOldRevision),
		errors.Is(err, rpctypes.ErrInvalidAuthToken), // a member that was restarted knows no token, and the client gets no new one for a stream
		errors.Is(err, errLearner):
		return unreachable{error: err}
	}
	code := codes.Unknown
	var failed rpctypes.EtcdError
	switch {
	case errors.As(err, &failed):
		code = failed.Code()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	default:
		code = status.Code(err)
	}
	switch code {
	case codes.ResourceExhausted: // the client sends no message that is larger than its limit
		return errTooLarge
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal, codes.Aborted:
		return unreachable{error: err, doubt: true}
	}
	return err
}

// doubtful reports whether an error leaves in doubt whether a request took effect.
func doubtful(err error) bool {
	var away unreachable
	return errors.As(err, &away) && away.doubt || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// repeat calls try again while a record has changed meanwhile, the cluster can't be reached, or
// a member of another cluster responds, until the time of a call is over.
func (s *Store) repeat(ctx context.Context, try func(ctx context.Context) error) error {
	return optimistic.Repeat(ctx, s.timeout, try, func(err error) bool {
		var away unreachable
		return errors.Is(err, errConflict) || errors.As(err, &away) || errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, ErrOtherCluster)
	}, func(err error) error {
		return fmt.Errorf("the call was not done within %v: %w", s.timeout, err)
	})
}

// read returns the key and value in the nth response of a transaction, or nil.
func read(r *clientv3.TxnResponse, n int) *mvccpb.KeyValue {
	if kvs := r.Responses[n].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// first returns the first key and value of a response, or nil.
func first(r *clientv3.GetResponse) *mvccpb.KeyValue {
	if len(r.Kvs) > 0 {
		return r.Kvs[0]
	}
	return nil
}
