package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// CheckAddresses returns an error with a finding if the addresses of a client belong to
// different clusters, or are those of Sentinels that watch different servers under the same
// name: each process could use other ones, and a command would run once in each. Call it before
// rueidis.NewClient, because a client does not show its addresses. It asks each address that
// responds within two seconds. A server that is down is not compared, but a store that reaches
// it later fails with ErrOtherCluster. If the user lacks a permission, that is an error, too.
func CheckAddresses(ctx context.Context, o rueidis.ClientOption) error {
	if len(o.InitAddress) < 2 {
		return nil
	}
	var err error
	for range 2 { // a failover may be under way
		var all []view
		if all, err = views(ctx, o); err == nil {
			err = compare(all)
		}
		if err == nil {
			break
		}
	}
	return wrap("check the addresses", err)
}

// A view holds the identities that an address shows. All addresses of a client have some of them in
// common.
type view struct {
	address string
	ids     []string
}

func compare(views []view) error {
	for i := 1; i < len(views); i++ {
		a, b := &views[0], &views[i]
		if slices.ContainsFunc(b.ids, func(id string) bool { return slices.Contains(a.ids, id) }) {
			continue
		}
		return engine.Reject([]onlyonce.Finding{engine.NewFinding(RiskMixed,
			fmt.Sprintf("%s and %s do not lead to the same servers: a command would run once on each", a.address, b.address),
			"name only nodes of one cluster, or Sentinels that watch the same servers")}, nil, nil)
	}
	return nil
}

// views returns the view of each address that responds.
func views(ctx context.Context, o rueidis.ClientOption) ([]view, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	show := cluster
	if o.Sentinel.MasterSet != "" {
		show = watched
	}
	found, errs := make([][]string, len(o.InitAddress)), make([]error, len(o.InitAddress))
	var running sync.WaitGroup
	for i, address := range o.InitAddress {
		running.Go(func() {
			var err error
			found[i], err = show(ctx, o, address)
			errs[i] = denied(err) // the client reports any other error
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var views []view
	for i, ids := range found {
		if len(ids) > 0 {
			views = append(views, view{o.InitAddress[i], ids})
		}
	}
	return views, nil
}

// cluster returns the IDs of the nodes that a node of a cluster knows.
func cluster(ctx context.Context, o rueidis.ClientOption, address string) (ids []string, err error) {
	o.InitAddress = []string{address}
	node, err := newSingle(o)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	text, err := node.Do(ctx, node.B().ClusterNodes().Build()).ToString()
	for line := range strings.Lines(text) {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	return ids, err
}

// watched returns identities of the primary that a Sentinel shows, which it has in common with
// the one that it has replaced.
func watched(ctx context.Context, o rueidis.ClientOption, address string) (ids []string, err error) {
	s, set := o, o.Sentinel.MasterSet
	s.InitAddress, s.SelectDB = []string{address}, 0
	s.Username, s.Password, s.TLSConfig = o.Sentinel.Username, o.Sentinel.Password, o.Sentinel.TLSConfig
	s.Sentinel, o.Sentinel = rueidis.SentinelOption{}, rueidis.SentinelOption{}
	sentinel, err := newSingle(s)
	if err != nil {
		return nil, err
	}
	defer sentinel.Close()
	at, err := sentinel.Do(ctx, sentinel.B().SentinelGetMasterAddrByName().Master(set).Build()).AsStrSlice()
	if err != nil || len(at) != 2 {
		return nil, err
	}
	o.InitAddress = []string{net.JoinHostPort(at[0], at[1])}
	primary, err := newSingle(o)
	if err != nil {
		return nil, err
	}
	defer primary.Close()
	about, err := info(ctx, primary)
	for _, name := range []string{"run_id", "master_replid", "master_replid2"} {
		if id := about[name]; strings.Trim(id, "0") != "" {
			ids = append(ids, id)
		}
	}
	return ids, err
}
