package kfaketest

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/kafkaonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// shipping are the settings of the inboxes here.
var shipping = inbox.Config{Consumer: "shipping", Redelivery: 45 * time.Second, Observer: onlyonce.DiscardEvents}

func newInbox() *inbox.Inbox { return inbox.New(memstore.New(memstore.Config{}), shipping) }

// quick tries again soon, and logs nothing.
var quick = kafkaonce.Config{Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, Failed: func(context.Context, *kgo.Record, error) {}}

// A kafka is a cluster with the topic "orders".
type kafka struct {
	t       *testing.T
	cluster *kfake.Cluster
	client  *kgo.Client // of the producer
}

// start starts a cluster until the end of the test.
func start(t *testing.T, partitions int32) *kafka {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders"), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	k := &kafka{t: t, cluster: cluster}
	k.client = k.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return k
}

func (k *kafka) newClient(opts ...kgo.Opt) *kgo.Client {
	k.t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(k.cluster.ListenAddrs()...))...)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(client.Close)
	return client
}

// record returns a record of the topic.
func record(partition int32, value string) *kgo.Record {
	return &kgo.Record{Topic: "orders", Partition: partition, Value: []byte(value)}
}

// produce appends records to their partitions.
func (k *kafka) produce(records ...*kgo.Record) {
	k.t.Helper()
	if err := k.client.ProduceSync(k.t.Context(), records...).FirstErr(); err != nil {
		k.t.Fatal(err)
	}
}

// run runs a consumer until stop is called, or until the end of the test. stop returns when Run has.
func (k *kafka) run(c *kafkaonce.Consumer, opts ...kgo.Opt) (stop func()) {
	opts = slices.Concat([]kgo.Opt{
		kgo.SeedBrokers(k.cluster.ListenAddrs()...), kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"),
		kgo.HeartbeatInterval(50 * time.Millisecond), kgo.AutoCommitInterval(100 * time.Millisecond), kgo.FetchMaxWait(50 * time.Millisecond),
	}, opts)
	return consumertest.Run(k.t, func(ctx context.Context) error { return c.Run(ctx, opts...) })
}

// committed returns the committed offset of a partition; 0: none.
func (k *kafka) committed(partition int32) int64 {
	k.t.Helper()
	offsets, err := kadm.NewClient(k.client).FetchOffsets(k.t.Context(), "shipping")
	if err != nil {
		k.t.Fatal(err)
	}
	o, ok := offsets.Lookup("orders", partition)
	if !ok {
		return 0
	}
	return max(o.At, 0)
}

// watchCommits calls f for each offset that a consumer commits, before the cluster stores it.
func (k *kafka) watchCommits(f func(partition int32, offset int64)) {
	k.cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		for _, topic := range r.(*kmsg.OffsetCommitRequest).Topics {
			for _, p := range topic.Partitions {
				f(p.Partition, p.Offset)
			}
		}
		return nil, nil, false
	})
}

// loseCommits makes every commit fail while lost is true.
func (k *kafka) loseCommits(lost *atomic.Bool) {
	k.cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if !lost.Load() {
			return nil, nil, false
		}
		k.cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, topic := range r.(*kmsg.OffsetCommitRequest).Topics {
			t := kmsg.NewOffsetCommitResponseTopic()
			t.Topic, t.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				partition := kmsg.NewOffsetCommitResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				t.Partitions = append(t.Partitions, partition)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
}

// at is the place of a record, as in "3/1042".
func at(r *kgo.Record) string {
	return strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10)
}
