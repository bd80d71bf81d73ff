package etcdstore

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Of several endpoints, one may be a member that has been added and does not vote yet, or one
// that was restarted and does not know the client's token.
func TestJudge_WhatOneMemberRejectsIsAskedAgainAndWasNotStored(t *testing.T) {
	for _, rejected := range []error{rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrGRPCInvalidAuthToken} {
		err := classify(rpctypes.Error(rejected))
		var away unreachable
		if !errors.As(err, &away) || doubtful(err) {
			t.Errorf("%v: got %#v", rejected, err)
		}
	}
}
