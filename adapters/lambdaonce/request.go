package lambdaonce

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The parts of a request, in whatever format its event is.
type parts struct {
	method, path, query, protocol string
	host, ip                      string
	route                         string // of the API, without its method
	header                        http.Header
	body                          string
	isBase64                      bool
}

func (e HTTPEvent) parts() parts {
	if v1 := e.V1; v1 != nil {
		c := &v1.RequestContext
		query := url.Values(lists(v1.MultiValueQueryStringParameters, v1.QueryStringParameters))
		return parts{
			method: v1.HTTPMethod, path: v1.Path, query: query.Encode(), protocol: c.Protocol,
			host: c.DomainName, ip: c.Identity.SourceIP, route: v1.Resource,
			header: header(lists(v1.MultiValueHeaders, v1.Headers)), body: v1.Body, isBase64: v1.IsBase64Encoded,
		}
	}
	v2, c := e.V2, &e.V2.RequestContext
	_, route, _ := strings.Cut(v2.RouteKey, " ")
	h := header(lists(nil, v2.Headers))
	if len(v2.Cookies) > 0 {
		h["Cookie"] = []string{strings.Join(v2.Cookies, "; ")}
	}
	return parts{
		method: c.HTTP.Method, path: v2.RawPath, query: v2.RawQueryString, protocol: c.HTTP.Protocol,
		host: c.DomainName, ip: c.HTTP.SourceIP, route: route,
		header: h, body: v2.Body, isBase64: v2.IsBase64Encoded,
	}
}

// lists returns the fields with all their values, which an event has under one of two names.
func lists(all map[string][]string, last map[string]string) map[string][]string {
	if len(all) > 0 {
		return all
	}
	all = make(map[string][]string, len(last))
	for name, value := range last {
		all[name] = []string{value}
	}
	return all
}

// header returns the fields of a header. Names that differ in case only are one field.
func header(fields map[string][]string) http.Header {
	h := make(http.Header, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		for _, value := range fields[name] {
			h.Add(name, value)
		}
	}
	return h
}

// request returns the request of the event as one of net/http. An error is the client's.
func (e HTTPEvent) request(ctx context.Context) (*http.Request, error) {
	p := e.parts()
	u, err := p.url(e.decoded)
	if err != nil {
		return nil, err
	}
	data := []byte(p.body)
	if p.isBase64 {
		if data, err = base64.StdEncoding.DecodeString(p.body); err != nil {
			return nil, errors.New("its body is not base64")
		}
	}
	r := &http.Request{
		Method: p.method, URL: u, RequestURI: u.RequestURI(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: p.header, Host: cmp.Or(p.header.Get("Host"), p.host), RemoteAddr: net.JoinHostPort(p.ip, "0"),
		Body: http.NoBody, ContentLength: int64(len(data)), Pattern: p.pattern(),
	}
	if major, minor, ok := http.ParseHTTPVersion(p.protocol); ok {
		r.Proto, r.ProtoMajor, r.ProtoMinor = p.protocol, major, minor
	}
	if len(data) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(data))
	}
	delete(p.header, "Host")
	delete(p.header, "Transfer-Encoding") // the body is complete
	return r.WithContext(ctx), nil
}

// url returns the URL of the request. Its path is decoded exactly once, by API Gateway or here:
// otherwise, the path that selects the handler might not be the one that was authorized.
func (p parts) url(decoded bool) (*url.URL, error) {
	u := &url.URL{Path: p.path}
	if !decoded {
		var err error
		if u, err = url.ParseRequestURI(p.path); err != nil {
			return nil, errors.New("its path is not well-formed")
		}
	}
	if !strings.HasPrefix(p.path, "/") {
		return nil, errors.New("its path does not begin with a slash")
	}
	u.RawQuery = p.query
	return u, nil
}

// pattern returns the route of the API, or "" if that is no more than a part of the path: then
// the router has to find the route.
func (p parts) pattern() string {
	if p.route == "" || strings.Contains(p.route, "+}") {
		return ""
	}
	return p.method + " " + p.route
}
