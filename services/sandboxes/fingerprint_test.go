package sandboxes

import (
	"testing"
)

func TestFingerprint_ACreateIsComparedAsParsedWithItsDefaults(t *testing.T) {
	w := newWorld(t)
	workspace := w.create(`{}`).WorkspaceID
	for name, equal := range map[string][]string{
		"defaults": {
			``, `{}`, "{ \n}", `{"profile":"python-default"}`, `{"profile":null}`, `{"workspace_id":null}`, `{"ttl":null}`, `{"ttl":0}`,
			`{"ttl":0,"workspace_id":null,"profile":"python-default"}`, `{"pro\u0066ile":"python\u002ddefault"}`,
		},
		"ttl":       {`{"ttl":60}`, ` { "ttl" : 60 } `, `{"profile":null,"ttl":60}`, `{"ttl":60,"profile":"python-default"}`},
		"workspace": {`{"workspace_id":"` + workspace + `"}`, `{"ttl":0,"workspace_id":"` + workspace + `"}`},
	} {
		first := w.send("POST", "/v1/sandboxes", equal[0], key, name)
		if first.Status != 201 {
			t.Fatalf("%s: %d %s", name, first.Status, first.Body)
		}
		for _, body := range equal[1:] {
			again := w.send("POST", "/v1/sandboxes", body, key, name)
			same(t, first, again)
			if again.Header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%s: %q is no repeat of %q: %d %s", name, body, equal[0], again.Status, again.Body)
			}
		}
	}
	for name, body := range map[string]string{
		"defaults":  `{"workspace_id":"` + workspace + `"}`,
		"ttl":       `{"ttl":61}`,
		"workspace": `{}`,
	} {
		w.send("POST", "/v1/sandboxes", body, key, name).want(t, 409, "conflict")
	}
}

func TestFingerprint_AnExtensionIsComparedAsParsed(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	first := w.extend(s.ID, `{"extend_by":600}`, key, "k")
	for _, body := range []string{" {\n\"extend_by\" : 600 } ", `{"extend\u005fby":600}`} {
		same(t, first, w.extend(s.ID, body, key, "k"))
	}
	w.extend(s.ID, `{"extend_by":601}`, key, "k").want(t, 409, "conflict")
}

func TestFingerprint_AConfiguredProfileDiffersFromTheDefault(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Profiles = map[string]Profile{defaultProfile: {Command: "sleep"}, "other": {Command: "sleep"}}
	})
	w.create(`{}`, key, "k")
	w.send("POST", "/v1/sandboxes", `{"profile":"other"}`, key, "k").want(t, 409, "conflict")
}
