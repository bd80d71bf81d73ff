package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// smallestFrame is a frame_max that an administrator may set.
const smallestFrame = 8192

// withSmallFrames returns the address of a proxy for RabbitMQ that makes server and client agree
// on frames of smallestFrame bytes.
func withSmallFrames(t *testing.T, address string) string {
	t.Helper()
	server, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	target := server.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go proxySmallFrames(client, target)
		}
	}()
	server.Host = l.Addr().String()
	return server.String()
}

func proxySmallFrames(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	const head = 7 // of a frame: type, channel, length of the payload
	for tuned := false; !tuned; {
		frame := make([]byte, head)
		if _, err := io.ReadFull(server, frame); err != nil {
			return
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame[3:])+1)...)
		if _, err := io.ReadFull(server, frame[head:]); err != nil {
			return
		}
		if tuned = bytes.HasPrefix(frame[head:], []byte{0, 10, 0, 30}); tuned { // connection.tune: channel_max, frame_max, heartbeat
			binary.BigEndian.PutUint32(frame[head+6:], smallestFrame)
		}
		if _, err := client.Write(frame); err != nil {
			return
		}
	}
	_, _ = io.Copy(client, server)
}

func TestAMQP_AMessageWhoseHeadersDoNotFitIntoAFrameFailsAlone(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		direct, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: NATS sends a message as a whole")
		}
		r := receive(t, direct, "one", nil)
		b, err := Open(t.Context(), withSmallFrames(t, direct.incoming.address), direct.cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		message := func(payload string, header int) outbox.Message {
			return outbox.Message{
				ID: outbox.NewID(), Topic: "t", Key: "k", Payload: []byte(payload), CreatedAt: time.Now(),
				Headers: map[string]string{"long": strings.Repeat("x", header), outbox.HeaderKey: "k"},
			}
		}
		m := message("most", 0)
		fits := smallestFrame - headerFrame(encodeAMQP(m))
		for _, batch := range [][]outbox.Message{
			{message("first", 1), message("too long", fits+1), message("second", 1)},
			{message("most", fits), message("much too long", 2*smallestFrame)},
		} {
			for i, err := range b.Publish(ctx, batch) {
				tooLong := strings.HasSuffix(string(batch[i].Payload), "too long")
				switch {
				case !tooLong && err != nil:
					t.Errorf("%s: %v", batch[i].Payload, err)
				case tooLong && (err == nil || errors.Is(err, outbox.ErrUnavailable) || !strings.Contains(err.Error(), "frame_max")):
					t.Errorf("%s: %v does not say that the message can't be sent", batch[i].Payload, err)
				}
			}
		}
		for _, payload := range []string{"first", "second", "most"} {
			eventually(t, payload+" comes", func() bool { return r.has(payload) })
		}
	})
}
