package servertest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// users are the store's user, with the permissions that the package documentation lists, and
// users who lack one of them. The password of each is its name.
const users = `
accounts {
  APP { jetstream: enabled, users: [
    {user: app, password: app}
    {user: store, password: store, permissions: {
      publish: ["onlyonce.records.>", "onlyonce.ended.*", "$JS.API.STREAM.*.onlyonce", "$JS.API.STREAM.MSG.GET.onlyonce", "$JS.API.CONSUMER.>"]
      subscribe: ["onlyonce.ended.*", "_INBOX.>"]
    }}
    {user: records, password: records, permissions: {publish: {deny: "onlyonce.records.>"}}}
    {user: info, password: info, permissions: {publish: {deny: "$JS.API.STREAM.INFO.onlyonce"}}}
    {user: get, password: get, permissions: {publish: {deny: "$JS.API.STREAM.MSG.GET.onlyonce"}}}
    {user: inbox, password: inbox, permissions: {subscribe: {deny: "_INBOX.>"}}}
  ]}
  SYS {}
}
`

// A server does not respond to a request that its user may not make.
func TestOpen_NamesThePermissionThatTheUserLacks(t *testing.T) {
	server := newServer(t, "single", func(s *natsServer) string { return s.jetstream("") + users })
	server.port = freePort(t)
	server.restart()
	js := connect(t, server)
	migrate(t, js, natsstore.Config{})
	before := stream(t, js).CachedInfo().State.LastSeq
	as := func(user string) []nats.Option {
		return []nats.Option{nats.UserInfo(user, user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
	}
	s := open(t, connectWith(t, []*natsServer{server}, as("store")...), natsstore.Config{})
	if after := stream(t, js).CachedInfo().State.LastSeq; after != before {
		t.Errorf("opening the store has stored %d messages", after-before)
	}
	hazard.Run(t, s, "k")
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if err != nil || r.ID.Key != "k" {
			t.Errorf("the documented user listed %+v, error %v", r, err)
		}
	}
	for user, want := range map[string]string{
		"records": `Publish to "onlyonce.records.`,
		"info":    `Publish to "$JS.API.STREAM.INFO.onlyonce"`,
		"get":     `Publish to "$JS.API.STREAM.MSG.GET.onlyonce"`,
		"inbox":   `Subscription to "_INBOX.`,
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			js := connectWith(t, []*natsServer{server}, as(user)...)
			_, err := natsstore.Open(t.Context(), js, natsstore.Config{AcceptRisks: unsynced})
			if err == nil || !strings.Contains(err.Error(), "lacks a permission") || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
				t.Errorf("the error is %v, want one of a permission for %s", err, want)
			}
		})
	}
}
