package sandboxes

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func (w *world) list(query string) (ids []string, next string) {
	w.t.Helper()
	got := w.send("GET", "/v1/sandboxes"+query, "")
	if got.Status != 200 {
		w.t.Fatalf("list responded with %d %s", got.Status, got.Body)
	}
	var page struct {
		Items      []sandbox
		NextCursor *string `json:"next_cursor"`
	}
	if err := json.Unmarshal([]byte(got.Body), &page); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range page.Items {
		ids = append(ids, s.ID)
	}
	if page.NextCursor != nil {
		next = *page.NextCursor
	}
	return ids, next
}

func TestList_AListIsPaged(t *testing.T) {
	w := newWorld(t)
	if got := w.send("GET", "/v1/sandboxes", ""); got.Body != `{"items":[],"next_cursor":null}` {
		t.Error(got.Body)
	}
	var made []string
	for range 5 {
		made = append(made, w.create(`{}`).ID)
	}
	slices.Sort(made)
	var seen []string
	cursor := ""
	for _, size := range []int{2, 2, 1} {
		ids, next := w.list("?limit=2&status=&cursor=" + cursor)
		if len(ids) != size {
			t.Errorf("a page of %d, want %d", len(ids), size)
		}
		seen, cursor = append(seen, ids...), next
	}
	if !slices.Equal(seen, made) || cursor != "" {
		t.Errorf("seen %v, made %v, then %q", seen, made, cursor)
	}
	if ids, next := w.list("?limit=5"); len(ids) != 5 || next != "" {
		t.Errorf("a page that is just full: %d, then %q", len(ids), next)
	}
}

func TestList_APageHas50SandboxesUnlessTheCallerSaysOtherwise(t *testing.T) {
	w := newWorld(t)
	for range 51 {
		w.exec("INSERT INTO sandboxes_sandboxes (id, owner, profile, workspace_id, created_at) VALUES (?, 'anonymous', 'p', 'w', 0)", newID(sandboxIDs))
	}
	if ids, next := w.list(""); len(ids) != 50 || next != ids[49] {
		t.Errorf("%d, then %q", len(ids), next)
	}
	if ids, next := w.list("?limit=200"); len(ids) != 51 || next != "" {
		t.Errorf("%d, then %q", len(ids), next)
	}
}

func TestList_AListIsFilteredByStatus(t *testing.T) {
	w := newWorld(t)
	want := map[string]string{"idle": w.create(`{}`).ID, "ready": w.create(`{}`).ID, "expired": w.create(`{"ttl":60}`).ID, "failed": w.create(`{}`).ID, "starting": w.create(`{}`).ID}
	w.start(want["ready"])
	w.expire(want["expired"])
	w.exec("UPDATE sandboxes_sandboxes SET session_state = 'failed' WHERE id = ?", want["failed"])
	w.exec("UPDATE sandboxes_sandboxes SET session_state = 'starting', session_id = 'x' WHERE id = ?", want["starting"])
	for status, id := range want {
		if ids, _ := w.list("?status=" + status); !slices.Equal(ids, []string{id}) {
			t.Errorf("%s: %v, want %s", status, ids, id)
		}
		if now := w.get(id); now.Status != status {
			t.Errorf("%s is %s", id, now.Status)
		}
	}
}

func TestList_AListWithInvalidParametersIsRejected(t *testing.T) {
	w := newWorld(t)
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=201": "limit", "limit=-1": "limit", "limit=x": "limit", "limit=1.5": "limit", "limit=99999999999999999999": "limit",
		"cursor=nonsense": "cursor", "cursor=sandbox-x": "cursor", "status=asleep": "status", "limit=%zz": "query",
	} {
		got := w.send("GET", "/v1/sandboxes?"+query, "")
		got.want(t, 400, "validation_error")
		if got.failure.Details["field"] != field {
			t.Errorf("%s: details %v", query, got.failure.Details)
		}
	}
	for _, query := range []string{"?limit=1", "?limit=200", fmt.Sprintf("?cursor=%s", newID(sandboxIDs))} {
		w.list(query)
	}
}
