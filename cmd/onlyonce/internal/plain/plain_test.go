package plain

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// bad are characters that a terminal acts on, or that hide others.
const bad = "\x00\x07\x1b[2J\x7f\u0085\u009b31m\u00ad\u061c\u200b\u200e\u202e\u2028\u2066\u2069\ufeff\U000e0041"

func hides(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

func TestPlain_NoJSONHidesAnythingInATerminal(t *testing.T) {
	t.Parallel()
	doc, err := json.Marshal(map[string]string{"a" + bad: bad + "日é"})
	if err != nil {
		t.Fatal(err)
	}
	out := JSON(doc)
	var back map[string]string
	if err := json.Unmarshal(out, &back); err != nil || back["a"+bad] != bad+"日é" {
		t.Errorf("%s means %q, %v", out, back, err)
	}
	if strings.ContainsFunc(string(out), hides) || !strings.Contains(string(out), "日é") {
		t.Errorf("%q", out)
	}
}

func FuzzPlainJSONHidesNothingAndMeansTheSame(f *testing.F) {
	f.Add(bad)
	f.Add("postgres://u:p@h")
	f.Fuzz(func(t *testing.T, text string) {
		doc, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		out := JSON(doc)
		var before, after string
		if err := json.Unmarshal(doc, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &after); err != nil || before != after || strings.ContainsFunc(string(out), hides) {
			t.Errorf("%q became %q, %v", doc, out, err)
		}
		Mask(text)
	})
}

func TestPlain_NoFormOfAPasswordIsShown(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"postgres://u:hunter2@h/d", "postgresql://u:hunter2@h", "open postgres://u:hun@hunter2@h:5432/d?x=y: no",
		`invalid value "mysql://u:hun hunter2@h/d" for --store`, "mysql://u:hun/hunter2@h/d", "mariadb://:hunter2@h/d", "POSTGRES://u:hunter2@h/d",
		"host=db password=hunter2 user=u", "host=db password='hunter 2' user=u", `host=db password='hun\'hunter2' user=u`,
		"host=db password = hun:hunter2", `password="hunter2 hunter2"`, "PGPASSWORD=hunter2", "postgres://h/d?user=u&password=hunter2&x=y",
		`the scheme "host=db password=hunter2" is not known`, `"password=\"hunter2\""`,
		"u:hunter2@tcp(h:3306)/d", "u:hun@hunter2@unix(/run/s)/d", "amqp://u:hunter2@h:5672", "nats://u:hunter2@h",
		"nats://hunter2@h:4222", "etcd://u:hun/hunter2@h", "dynamodb://u:hun/hunter2@r/t", "ETCDS://u:hun hunter2@h/p", "TLS://hunter2@h", `parse "nats://hun%zzhunter2@h": no`, "nats://hun/hunter2@h",
		`parse "postgres://u:hunter2%zz@h": invalid URL escape "%zz"`, "http://u:hunter2@h/",
		"open amqp://u:xxxxx@hun/hunter2@h: no such host", "open nats://u:xxxxx@h,u:hunter2@h2: no", "u:xxxxx@hunter2@tcp(h:3306)/d",
		"there is no setting \"postgres://u:hunter2@h/d\" in store",
	} {
		if got := Mask(text); strings.Contains(got, "hunter") || !strings.Contains(got, "xxxxx") {
			t.Errorf("%q became %q", text, got)
		}
	}
	for _, text := range []string{
		"postgres://u@h/d", "amqp://u@h", "nats://h:4222", "http://127.0.0.1:3000/a", "listen tcp 127.0.0.1:80: in use", "sqlite:/a b/c.db", "mail ada@example.com", "write nats://HOST:4222 or amqp://USER:PASSWORD@HOST:5672", "write postgres://USER or password: none",
		"open mysql://root:xxxxx@h:3306/d: Error 1045 (28000): Access denied for user 'root'@'127.0.0.1' (using password: YES)",
		"open postgres://u:xxxxx@h/d: ask ada@example.com",
	} {
		if got := Mask(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
