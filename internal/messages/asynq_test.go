package messages_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func welcome(tasks *asynq.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		letter, ok := readBody(w, r)
		if !ok {
			return
		}
		id := onlyonce.Current(r.Context()).Key("welcome") // the same in every attempt of this command
		_, err := tasks.EnqueueContext(r.Context(), asynq.NewTask("welcome", letter), asynq.TaskID(id), asynq.Retention(24*time.Hour))
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) { // a conflict: an earlier attempt enqueued the task
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

func welcomeRoutes(guard *onlyonce.Guard, welcome http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /welcomes", httponce.Wrap(guard, welcome, httponce.Config{Tenant: accountOf, Required: true}))
	return mux
}

func taskPublisher(tasks *asynq.Client) outbox.Publisher {
	return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) []error {
		errs := make([]error, len(messages))
		for i, m := range messages {
			id := hex.EncodeToString(onlyonce.Fingerprint([]byte(m.Tenant), []byte(m.ID)))
			_, err := tasks.EnqueueContext(ctx, asynq.NewTask(m.Topic, m.Payload), asynq.TaskID(id), asynq.Retention(24*time.Hour))
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
				errs[i] = fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
			}
		}
		return errs
	})
}

func welcomeWorker(in *inbox.Inbox, send func(ctx context.Context, key, letter string) error) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		_, err := inbox.Handle(ctx, in, inbox.Message{ID: id, Payload: task.Payload()}, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, send(ctx, onlyonce.Current(ctx).Key("send"), string(task.Payload()))
		})
		return err // Asynq runs the task again
	}
}

// newAsynq starts a Redis server.
func newAsynq(t *testing.T) (asynq.RedisClientOpt, *asynq.Client, *asynq.Inspector) {
	t.Helper()
	server, err := redisserver.Start()
	redisserver.Require(t, err)
	t.Cleanup(func() { _ = server.Close() })
	redis := asynq.RedisClientOpt{Addr: server.Address()}
	tasks, inspector := asynq.NewClient(redis), asynq.NewInspector(redis)
	t.Cleanup(func() {
		_ = tasks.Close()
		_ = inspector.Close()
	})
	return redis, tasks, inspector
}

// pending returns the tasks that wait.
func pending(t *testing.T, inspector *asynq.Inspector) []*asynq.TaskInfo {
	t.Helper()
	list, err := inspector.ListPendingTasks("default")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAsynq_ACommandThatDiesAfterItEnqueuedATaskEnqueuesNoSecond(t *testing.T) {
	_, tasks, inspector := newAsynq(t)
	h := welcome(tasks)
	var attempts atomic.Int32
	dies := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		if attempts.Add(1) == 1 {
			panic("the process dies")
		}
	})
	routes := welcomeRoutes(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents}), dies)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the first attempt did not die")
			}
		}()
		send(routes, "/welcomes", "k", "Welcome!")
	}()
	for range 3 {
		if status, body := send(routes, "/welcomes", "k", "Welcome!"); status != 202 {
			t.Errorf("got %d %s", status, body)
		}
	}
	if n := attempts.Load(); n != 2 {
		t.Errorf("%d attempts", n)
	}
	if list := pending(t, inspector); len(list) != 1 || string(list[0].Payload) != "Welcome!" {
		t.Errorf("the tasks are %v", list)
	}
}

func TestAsynq_ATaskOfAnOutboxIsEnqueuedOnce(t *testing.T) {
	_, tasks, inspector := newAsynq(t)
	store, db := openShop(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", "zenith"} {
		if err := store.Outbox().Append(t.Context(), tx, outbox.Message{ID: "m", Topic: "welcome", Tenant: tenant, Payload: []byte("Welcome!")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	publisher := taskPublisher(tasks)
	var calls atomic.Int32
	forgetful := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) []error {
		errs := publisher.Publish(ctx, messages)
		if calls.Add(1) == 1 { // Redis has the tasks, but the relay does not know
			for i := range errs {
				errs[i] = outbox.ErrUnavailable
			}
		}
		return errs
	})
	relay := outbox.NewRelay(store.Outbox(), forgetful, outbox.Config{Backoff: time.Millisecond})
	run(t, func(ctx context.Context) error { relay.Run(ctx); return nil })
	consumertest.Eventually(t, "the messages are published", func() bool {
		var left int
		err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM onlyonce_outbox").Scan(&left)
		return err == nil && left == 0
	})
	if list := pending(t, inspector); len(list) != 2 || calls.Load() < 2 {
		t.Errorf("the tasks are %v, after %d calls", list, calls.Load())
	}
}

func TestAsynq_ATaskThatRunsAgainIsSentOnce(t *testing.T) {
	redis, tasks, inspector := newAsynq(t)
	c := &carrier{fails: 1}
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "mailer", Redelivery: 30 * time.Second})
	mux := asynq.NewServeMux()
	mux.HandleFunc("welcome", welcomeWorker(in, c.ship))
	server := asynq.NewServer(redis, asynq.Config{
		LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 10 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	if err := server.Start(mux); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	for range 3 { // Asynq forgets a task after its retention, and a sender may send it again
		if _, err := tasks.Enqueue(asynq.NewTask("welcome", []byte("Welcome!")), asynq.TaskID("t"), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
		consumertest.Eventually(t, "the task is completed", func() bool {
			info, err := inspector.GetTaskInfo("default", "t")
			return err == nil && info.State == asynq.TaskStateCompleted
		})
		if err := inspector.DeleteTask("default", "t"); err != nil {
			t.Fatal(err)
		}
	}
	c.wantShipped(t, 1)
}
