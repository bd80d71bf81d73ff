package outbox_test

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce/outbox"
)

func ExamplePublisherFunc() {
	send := func(_ context.Context, m outbox.Message) error {
		fmt.Println(m.Topic, string(m.Payload))
		return nil
	}
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) []error {
		errs := make([]error, len(messages))
		for i, m := range messages {
			errs[i] = send(ctx, m) // returns once the broker has it
		}
		return errs
	})
	publisher.Publish(context.Background(), []outbox.Message{{Topic: "orders.created", Payload: []byte("{}")}})
	// Output: orders.created {}
}

func ExampleCarry() {
	ctx := outbox.Carry(context.Background(), outbox.HeaderTraceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	// A message appended under ctx, by a function that knows nothing of traces:
	m, err := outbox.Prepare(ctx, outbox.Message{Topic: "orders.created"})
	fmt.Println(m.Headers["traceparent"], err)
	// Output: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 <nil>
}

func ExampleRelay() {
	queue := newMemQueue() // store.Outbox()
	ctx, stop := context.WithCancel(context.Background())
	publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) []error {
		fmt.Printf("%s\n", messages[0].Payload)
		stop()
		return nil
	})
	if err := queue.append(ctx, outbox.Message{Topic: "orders.created", Key: "order 1", Payload: []byte("made")}); err != nil {
		fmt.Println(err)
	}
	outbox.NewRelay(queue, publisher, outbox.Config{}).Run(ctx)
	// Output: made
}
