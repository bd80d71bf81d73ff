package pgxstore

import (
	"testing"
	"time"
)

func TestConnection_TheServerForgetsItsPlansOnceASecond(t *testing.T) {
	before := time.Now()
	due := storeConn{planned: before.Add(-plansLast)}
	if first := due.sessionSetup(); first != sqlText["forget plans"] {
		t.Errorf("a batch begins with %q", first)
	}
	if due.planned.Before(before) {
		t.Error("it begins so again at once")
	}
	fresh := storeConn{planned: time.Now().Add(time.Hour)}
	if first := fresh.sessionSetup(); first != "" {
		t.Errorf("a batch with fresh plans begins with %q", first)
	}
	shared := storeConn{shared: true}
	if first := shared.sessionSetup(); first != sqlText["transaction settings"] {
		t.Errorf("behind a pooler, a batch begins with %q", first)
	}
}
