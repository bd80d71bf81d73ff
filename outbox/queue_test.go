package outbox_test

import (
	"context"
	"testing"

	"github.com/onlyonce-go/onlyonce/outbox/queuetest"
)

func TestQueue_TheQueueOfTheseTestsKeepsTheRulesOfAQueue(t *testing.T) {
	queuetest.Run(t, func(*testing.T) queuetest.Opened {
		q := newMemQueue()
		return queuetest.Opened{Queue: q, Begin: func(context.Context) (queuetest.Tx, error) { return q.begin(), nil }}
	})
}
