package proxy

import (
	"crypto/tls"
	"net/http"
	"testing"
)

func TestForwarded_TheHeadersThatDescribeTheOrigin(t *testing.T) {
	for _, c := range []struct {
		remote, host string
		secure       bool
		header       http.Header // of a trusted proxy
		list, say    string
	}{
		{"192.0.2.1:1234", "h", false, nil, "192.0.2.1", `for=192.0.2.1;host="h";proto=http`},
		{"[2001:db8::1]:1", "h:8080", true, nil, "2001:db8::1", `for="[2001:db8::1]";host="h:8080";proto=https`},
		{"@", "h", false, nil, "", `for=unknown;host="h";proto=http`},
		{"192.0.2.1:1", "", false, nil, "192.0.2.1", `for=192.0.2.1;proto=http`},
		{
			"192.0.2.1:1", "h", false,
			http.Header{"X-Forwarded-For": {"a", "b"}, "Forwarded": {"for=a", "for=b"}, "X-Forwarded-Host": {"i"}, "X-Forwarded-Proto": {"https"}},
			"a, b, 192.0.2.1", `for=a, for=b, for=192.0.2.1;host="i";proto=https`,
		},
		{
			"192.0.2.1:1", "h", false,
			http.Header{"X-Forwarded-Host": {`i";for=b;x="`}, "X-Forwarded-Proto": {"https;for=b"}},
			"192.0.2.1", `for=192.0.2.1;host="h";proto=http`,
		},
	} {
		r := &http.Request{RemoteAddr: c.remote, Host: c.host, Header: c.header}
		if c.secure {
			r.TLS = &tls.ConnectionState{}
		}
		o := originOf(r)
		if list, say := string(o.appendFor(nil)), string(o.appendForwarded(nil)); list != c.list || say != c.say {
			t.Errorf("%+v is told as %q and %q", c, list, say)
		}
	}
}
