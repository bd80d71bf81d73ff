package watermillonce_test

import (
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce/adapters/watermillonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

type panickingBroker struct{ *broker }

func (b panickingBroker) Publish(topic string, messages ...*message.Message) error {
	if string(messages[0].Payload) == "poison" {
		panic("a broker's bug")
	}
	return b.broker.Publish(topic, messages...)
}

func TestWatermill_AMessageAtWhichThePublisherPanicsFailsAlone(t *testing.T) {
	log := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	defer slog.SetDefault(log)
	p := watermillonce.NewPublisher(panickingBroker{new(broker)}, watermillonce.Config{})
	errs := p.Publish(t.Context(), made(t, "a", "poison", "b"))
	if errs[0] != nil || errs[2] != nil || errs[1] == nil || errors.Is(errs[1], outbox.ErrUnavailable) || !strings.Contains(errs[1].Error(), "a broker's bug") {
		t.Errorf("got %v", errs)
	}
}

type exitingBroker struct{ *broker }

func (b exitingBroker) Publish(topic string, messages ...*message.Message) error {
	if string(messages[0].Payload) == "poison" {
		runtime.Goexit()
	}
	return b.broker.Publish(topic, messages...)
}

func TestWatermill_AMessageAtWhichThePublisherEndsItsGoroutineFailsAlone(t *testing.T) {
	p := watermillonce.NewPublisher(exitingBroker{new(broker)}, watermillonce.Config{})
	errs := p.Publish(t.Context(), made(t, "a", "poison", "b"))
	if errs[0] != nil || errs[2] != nil || errs[1] == nil || errors.Is(errs[1], outbox.ErrUnavailable) {
		t.Errorf("got %v", errs)
	}
}
