package logging

import (
	"log/slog"
	"strings"
	"testing"
)

func TestWarnOfPasswords_APasswordThatEveryUserCanReadIsWarnedOf(t *testing.T) {
	t.Parallel()
	for args, warnings := range map[string]int{
		"proxy --store postgres://u:hunter2@h/d":                             1,
		"proxy --store=mysql://u:hunter2@h/d":                                1,
		"serve --store postgres://h/d?user=u&password=hunter2":               1,
		"relay --store postgres://u:hunter2@h/d --broker amqp://u:hunter2@h": 2,
		"proxy --store nats://hunter2@h":                                     1,
		"proxy --store postgres://u@h/d --upstream http://127.0.0.1:80":      0,
		"proxy --store sqlite:a.db --store-file passwords":                   0,
	} {
		var out strings.Builder
		WarnOfPasswords(strings.Fields(args), slog.New(slog.NewTextHandler(&out, nil)))
		if strings.Count(out.String(), "level=WARN") != warnings || strings.Contains(out.String(), "hunter") {
			t.Errorf("%s: want %d warnings, got\n%s", args, warnings, &out)
		}
	}
}
