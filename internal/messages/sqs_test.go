package messages_test

import (
	"cmp"
	"context"
	"crypto/md5" // of the protocol of SQS
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func consumeSQS(ctx context.Context, client *sqs.Client, queue string, in *inbox.Inbox, ship func(ctx context.Context, key, order string) error) error {
	for {
		batch, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			return err
		}
		for _, m := range batch.Messages {
			_, err := inbox.Handle(ctx, in, sqsMessage(m), func(ctx context.Context) (struct{}, error) {
				return struct{}{}, ship(ctx, onlyonce.Current(ctx).Key("ship"), *m.Body)
			})
			if err == nil {
				_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: m.ReceiptHandle})
			}
			if err != nil {
				slog.WarnContext(ctx, "an SQS message is delivered again", "message_id", *m.MessageId, "error", err)
				if strings.HasSuffix(queue, ".fifo") {
					break // the messages after it are delivered again, too, in their order
				}
			}
		}
	}
}

func sqsMessage(m types.Message) inbox.Message {
	headers := make(map[string]string)
	for name, a := range m.MessageAttributes {
		headers[name] = aws.ToString(a.StringValue)
	}
	id := cmp.Or(headers[outbox.HeaderID], *m.MessageId) // the MessageId is a new one when a sender sends again
	return inbox.Message{ID: id, Tenant: headers[outbox.HeaderTenant], Payload: []byte(*m.Body), Headers: headers}
}

// A fakeSQS is the part of SQS that a consumer needs. A message that was received is invisible until
// the test lets its timeout pass.
type fakeSQS struct {
	mu       sync.Mutex
	messages []*fakeMessage
	received int // batches with a message
	loses    int // how many calls of DeleteMessage are lost
}

type fakeMessage struct {
	types.Message
	invisible bool
}

func (f *fakeSQS) send(body string, attributes map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := md5.Sum([]byte(body))
	id := fmt.Sprint("message-", len(f.messages))
	m := types.Message{MessageId: &id, ReceiptHandle: &id, Body: &body, MD5OfBody: aws.String(hex.EncodeToString(sum[:])), MessageAttributes: map[string]types.MessageAttributeValue{}}
	for name, value := range attributes {
		m.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	f.messages = append(f.messages, &fakeMessage{Message: m})
}

// timeOut makes the messages visible that were received and not deleted.
func (f *fakeSQS) timeOut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.messages {
		m.invisible = false
	}
}

// left returns the bodies of the messages that were not deleted.
func (f *fakeSQS) left() (bodies []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.messages {
		bodies = append(bodies, *m.Body)
	}
	return bodies
}

func (f *fakeSQS) batches() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received
}

func (f *fakeSQS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var input struct{ ReceiptHandle string }
	if err := json.NewDecoder(r.Body).Decode(&input); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	switch r.Header.Get("X-Amz-Target") {
	case "AmazonSQS.ReceiveMessage":
		var output struct{ Messages []map[string]any }
		for len(output.Messages) == 0 && r.Context().Err() == nil {
			output.Messages = f.receive()
			if len(output.Messages) == 0 {
				time.Sleep(5 * time.Millisecond) // the long poll
			}
		}
		_ = json.NewEncoder(w).Encode(output)
	case "AmazonSQS.DeleteMessage":
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.loses--; f.loses >= 0 {
			http.Error(w, `{"__type":"com.amazonaws.sqs#InvalidSecurity"}`, http.StatusBadRequest)
			return
		}
		for i, m := range f.messages {
			if *m.ReceiptHandle == input.ReceiptHandle {
				f.messages = append(f.messages[:i], f.messages[i+1:]...)
				break
			}
		}
		fmt.Fprint(w, "{}")
	}
}

func (f *fakeSQS) receive() (batch []map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.messages {
		if m.invisible {
			continue
		}
		m.invisible = true
		attributes := map[string]any{}
		for name, a := range m.MessageAttributes {
			attributes[name] = map[string]any{"DataType": "String", "StringValue": *a.StringValue}
		}
		batch = append(batch, map[string]any{"MessageId": m.MessageId, "ReceiptHandle": m.ReceiptHandle, "Body": m.Body, "MD5OfBody": m.MD5OfBody, "MessageAttributes": attributes})
	}
	if batch != nil {
		f.received++
	}
	return batch
}

// newSQS starts a fake, and returns a client of it.
func newSQS(t *testing.T) (*fakeSQS, *sqs.Client) {
	t.Helper()
	fake := new(fakeSQS)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	return fake, sqs.New(sqs.Options{
		Region: "eu-central-1", BaseEndpoint: &server.URL, RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	})
}

func TestSQS_AConsumer(t *testing.T) {
	fake, client := newSQS(t)
	fake.send("a lamp", map[string]string{outbox.HeaderID: "m", outbox.HeaderTenant: "acme"})
	fake.send("a lamp", map[string]string{outbox.HeaderID: "m", outbox.HeaderTenant: "acme"})
	fake.send("a chair", nil)
	fake.loses = 2
	c := &carrier{fails: 1}
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "shipping", Redelivery: 30 * time.Second}) // the visibility timeout
	run(t, func(ctx context.Context) error { return consumeSQS(ctx, client, "https://sqs/orders", in, c.ship) })
	consumertest.Eventually(t, "all are deleted", func() bool {
		fake.timeOut()
		return len(fake.left()) == 0
	})
	c.wantShipped(t, 2)
}

func TestSQS_TheOrderOfAFIFOQueueIsPreserved(t *testing.T) {
	fake, client := newSQS(t)
	for _, order := range []string{"1", "2", "3"} {
		fake.send(order, nil)
	}
	c := &carrier{fails: 1}
	var mu sync.Mutex
	var order []string
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "shipping", Redelivery: 30 * time.Second})
	run(t, func(ctx context.Context) error {
		return consumeSQS(ctx, client, "https://sqs/orders.fifo", in, func(ctx context.Context, key, what string) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
			return c.ship(ctx, key, what)
		})
	})
	consumertest.Eventually(t, "the batch is received", func() bool { return fake.batches() == 1 })
	consumertest.Eventually(t, "all are deleted", func() bool {
		mu.Lock()
		failed := len(order) >= 1
		mu.Unlock()
		if failed {
			fake.timeOut()
		}
		return len(fake.left()) == 0
	})
	if got := strings.Join(order, " "); got != "1 1 2 3" {
		t.Errorf("the order is %s", got)
	}
}
