//go:build linux

package costs

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/rueidis"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/etcdserver"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// NewRedis starts Redis.
func NewRedis() (*System, error) {
	server, err := redisserver.Start()
	if err != nil {
		return nil, err
	}
	dial := func(address string) (rueidis.Client, redisstore.Config, error) {
		o, cfg, err := redisstore.ParseURL("redis://" + address)
		if err != nil {
			return nil, cfg, err
		}
		client, err := rueidis.NewClient(o)
		return client, cfg, err
	}
	client, cfg, err := dial(server.Address())
	if err == nil {
		_, err = redisstore.Migrate(context.Background(), client, cfg)
		client.Close()
	}
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &System{
		Name: "Redis",
		Open: func(ctx context.Context, through *Meter) (onlyonce.Store, func(), error) {
			client, cfg, err := dial(at(server.Address(), through))
			if err != nil {
				return nil, nil, err
			}
			s, err := redisstore.Open(ctx, client, cfg)
			if err != nil {
				client.Close()
				return nil, nil, err
			}
			return s, func() { _ = s.Close(); client.Close() }, nil // nothing is left to be done
		},
		Meter: func() (*Meter, error) { return newMeter(server.Address()) },
		Written: func(context.Context) (w Written, err error) {
			text, err := server.Do("INFO", "everything")
			if err != nil {
				return w, err
			}
			sets, err1 := number(text, "cmdstat_set:calls=")
			log, err2 := number(text, "aof_current_size:")
			data, err3 := number(text, "used_memory_dataset:")
			if sets == 0 {
				err1 = nil // no record has been written yet
			}
			return Written{sets, log, data}, errors.Join(err1, err2, err3)
		},
		Close: server.Close,
	}, nil
}

// at returns the address to which a store connects.
func at(server string, through *Meter) string {
	if through == nil {
		return server
	}
	return through.Address()
}

// A meterDialer dials the meter instead of any address, if there is a meter.
type meterDialer struct{ meter *Meter }

func (w meterDialer) Dial(network, address string) (net.Conn, error) {
	return net.Dial(network, at(address, w.meter))
}

// NewNATS starts NATS.
func NewNATS() (*System, error) {
	servers, err := faults.StartNATS(1)
	if err != nil {
		return nil, err
	}
	url := faults.NATSURL(servers.Addresses())
	var metered []*nats.Conn
	js, _, err := faults.DialNATS(url, nil)
	if err != nil {
		return nil, errors.Join(err, servers.Close())
	}
	return &System{
		Name: "NATS",
		Open: func(ctx context.Context, through *Meter) (onlyonce.Store, func(), error) {
			js, cfg, err := faults.DialNATS(url, meterDialer{through})
			if err != nil {
				return nil, nil, err
			}
			s, err := natsstore.Open(ctx, js, cfg)
			if err != nil {
				js.Conn().Close()
				return nil, nil, err
			}
			if through != nil {
				metered = append(metered, js.Conn())
			}
			return s, func() { _ = s.Close(); js.Conn().Close() }, nil // nothing is left to be done
		},
		// Some requests do not wait for the response to the one before, so all are counted.
		Meter: func() (*Meter, error) {
			m, err := newMeter(servers.Addresses()[0])
			if err == nil {
				sent := 0
				m.trips = func() int {
					before := sent
					sent = 0
					for _, conn := range metered {
						sent += int(conn.Stats().OutMsgs)
					}
					return sent - before
				}
			}
			return m, err
		},
		Written: func(ctx context.Context) (w Written, err error) {
			var s jetstream.Stream
			if s, err = js.Stream(ctx, natsstore.DefaultStream); err != nil {
				return w, err
			}
			state := s.CachedInfo().State
			return Written{Writes: float64(state.LastSeq), Data: float64(state.Bytes)}, nil
		},
		Close: func() error { js.Conn().Close(); return servers.Close() },
	}, nil
}

// NewEtcd starts etcd.
func NewEtcd() (*System, error) {
	server, err := etcdserver.Start()
	if err != nil {
		return nil, err
	}
	var calls atomic.Int64
	dial := func(address string) (*clientv3.Client, etcdstore.Config, error) {
		u, err := etcdstore.ParseURL("etcd://" + address)
		if err != nil {
			return nil, etcdstore.Config{}, err
		}
		u.Client.Logger = zap.NewNop()
		u.Client.DialOptions = append(u.Client.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				calls.Add(1)
				return invoke(ctx, method, req, reply, cc, opts...)
			}))
		client, err := clientv3.New(u.Client)
		return client, u.Config, err
	}
	client, cfg, err := dial(server.Client)
	if err == nil {
		_, err = etcdstore.Migrate(context.Background(), client, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &System{
		Name: "etcd",
		Open: func(ctx context.Context, through *Meter) (onlyonce.Store, func(), error) {
			client, cfg, err := dial(at(server.Client, through))
			if err != nil {
				return nil, nil, err
			}
			s, err := etcdstore.Open(ctx, client, cfg)
			if err != nil {
				return nil, nil, errors.Join(err, client.Close())
			}
			return s, func() { _ = s.Close(); _ = client.Close() }, nil // nothing is left to be done
		},
		// gRPC also sends frames of its own, so its calls are counted instead.
		Meter: func() (*Meter, error) {
			m, err := newMeter(server.Client)
			if err == nil {
				m.trips = func() int { return int(calls.Swap(0)) }
			}
			return m, err
		},
		Written: func(ctx context.Context) (w Written, err error) {
			clock, err := client.Get(ctx, "revision")
			if err != nil {
				return w, err
			}
			text, err := server.Metrics()
			if err != nil {
				return w, err
			}
			log, err1 := number(text, "etcd_disk_wal_write_bytes_total")
			data, err2 := number(text, "etcd_mvcc_db_total_size_in_use_in_bytes")
			return Written{float64(clock.Header.Revision), log, data}, errors.Join(err1, err2)
		},
		Close: func() error { return errors.Join(client.Close(), server.Close()) },
	}, nil
}
