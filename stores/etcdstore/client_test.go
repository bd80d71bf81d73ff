package etcdstore

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Of several endpoints, one may be a member that has been added and does not vote yet.
func TestJudge_WhatALearnerRejectsIsAskedAgainAndWasNotStored(t *testing.T) {
	err := classify(rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner))
	var away unreachable
	if !errors.As(err, &away) || doubtful(err) {
		t.Errorf("got %#v", err)
	}
}
