// Package proxyfile reads and prints the file of settings of onlyonce proxy.
//
// A file is YAML. Whatever is wrong with it is found at once, and every error
// names its line and what to write instead. What Print prints, Parse accepts and
// means the same.
package proxyfile

import (
	"net/url"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/refusal"
)

// A File is what the file says. Every field has a value: what the file leaves
// out has its default, and what a route leaves out has that of Defaults.
type File struct {
	Listen          string        `yaml:"listen" doc:"Where clients connect. Port 0 takes a free one."`
	Admin           string        `yaml:"admin" eg:"127.0.0.1:9090" doc:"Where supervisors ask for /healthz, /readyz and /metrics. They are never served on the address above. Left out: nowhere."`
	LogFormat       string        `yaml:"log_format" doc:"json or text. The log goes to standard error."`
	LogLevel        string        `yaml:"log_level" doc:"The least severe level that is logged: debug, info, warn or error. Replays are info, runs are debug."`
	LogKeys         string        `yaml:"log_keys" doc:"What is logged of an idempotency key: hash, the beginning of the record's id; or raw. Whoever knows a key and its request can read the stored response."`
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" doc:"How long running requests may take to end after SIGINT or SIGTERM."`
	AcceptRisks     []string      `yaml:"accept_risks" eg:"[synchronous]" doc:"Findings of onlyonce doctor in spite of which the store is opened. file-mode stands for all files that other users of the machine can use: the store's, the keys of certificates, and files with secrets."`
	TLS             ServerTLS     `yaml:"tls" doc:"TLS towards clients. The files are read again when they change, and on SIGHUP. Without cert and key the proxy speaks plain HTTP."`
	Store           Store         `yaml:"store" doc:"Where the records are."`
	Tenant          Tenant        `yaml:"tenant" doc:"Whose request it is: two tenants may use one key and never see each other's answers. Exactly one of header, jwt, authorization and single."`
	Server          Server        `yaml:"server" doc:"What a client may send, and how long it may take."`
	Forwarded       Forwarded     `yaml:"forwarded" doc:"X-Forwarded-For, -Host, -Proto and Forwarded are always set from the connection. What a client sent of them is dropped, and so are other headers that say who the client is: X-Forwarded-*, X-Real-IP, Remote-User, X-Remote-*, X-Auth-Request-*, X-Client-Cert, X-SSL-* and similar ones."`
	Upstreams       []Upstream    `yaml:"upstreams" doc:"The servers behind the proxy. A request for which no route names one goes to the first. Where a request goes is never taken from the request."`
	Defaults        Settings      `yaml:"defaults" doc:"How requests are treated. A route may set any of these otherwise."`
	Unmatched       string        `yaml:"unmatched" doc:"What becomes of a request that matches no route. pass: it is treated as defaults say, and without a key it passes unprotected. refuse: with a protected method (defaults.methods) and without a key it is refused, so that a path nobody thought of is not a way round a route."`
	Routes          []Route       `yaml:"routes" doc:"Requests that are treated otherwise. The most specific pattern counts, as in Go's http.ServeMux. For what matches no route, see unmatched."`

	name  string
	lines map[string]int // of what the file gives, by paths such as routes[0].keep
}

// A ServerTLS says how clients reach the proxy.
type ServerTLS struct {
	Cert       string `yaml:"cert" eg:"server.crt" doc:"The certificate with its chain, PEM."`
	Key        string `yaml:"key" eg:"server.key" doc:"Its key, PEM."`
	ClientCA   string `yaml:"client_ca" eg:"clients.crt" doc:"Clients must show a certificate that one of these has signed."`
	MinVersion string `yaml:"min_version" doc:"\"1.2\" or \"1.3\"."`
}

// A Store says where the records are.
type Store struct {
	URL                   string        `yaml:"url" doc:"memory://, which forgets everything when the process ends; sqlite:PATH; postgres://USER:PASSWORD@HOST/DATABASE; or mysql://USER:PASSWORD@HOST/DATABASE. Several proxies that share one of the latter two give the same guarantees as one."`
	URLFile               string        `yaml:"url_file" eg:"/run/secrets/onlyonce-store" doc:"Instead of url: a file that holds the URL, so that its password is neither here nor in the list of processes."`
	FingerprintSecretFile string        `yaml:"fingerprint_secret_file" eg:"/run/secrets/onlyonce-fingerprint" doc:"A file with at least 16 random characters, which key the fingerprints of requests in the store: without them, whoever can read the store can find out a short body by trying. All proxies on one store need the same. After a change, repeats of earlier requests are refused with 422 until their records expire. Left out: a SQLite store has a generated one beside its file (PATH.secret), memory:// one until the process ends, and a server none."`
	PurgeEvery            time.Duration `yaml:"purge_every" doc:"How often expired records are deleted."`
	Limit                 Size          `yaml:"limit" doc:"How many bytes of records one proxy may store within keep, counting 512 for each and its answer's header and body; beyond, requests with a key get 503 for a while, repeats too. It is counted in the process, from its start, and falls evenly: by this much within keep."`
}

// A Tenant says whose request it is.
type Tenant struct {
	Header        string   `yaml:"header" eg:"X-Tenant-ID" doc:"The request header that names the tenant. Something in front of the proxy must have verified it and must replace what a client sends; see from."`
	From          Prefixes `yaml:"from" eg:"[127.0.0.0/8, \"::1/128\"]" doc:"The addresses from which the header is believed; from others it is dropped. Left out: this machine's, and with tls.client_ca clients with a certificate."`
	JWT           JWT      `yaml:"jwt" doc:"A claim of the token in Authorization: Bearer, which is verified."`
	Authorization bool     `yaml:"authorization" doc:"A digest of the Authorization header: each one is a tenant."`
	NewPerAddress int      `yaml:"new_per_address" doc:"With authorization, where anybody can invent tenants: how many that were not seen lately one address may bring a minute, and at once; more get 429. Of IPv6 the first 64 bits count. Behind a proxy named in forwarded.trust, the address is that of its client."`
	Single        bool     `yaml:"single" doc:"All callers are one, and may see each other's answers."`
}

// A JWT says how tokens are verified.
type JWT struct {
	Claim    string        `yaml:"claim" eg:"sub" doc:"The claim whose text is the tenant."`
	JWKS     string        `yaml:"jwks" eg:"https://id.example.com/jwks.json" doc:"The public keys: a file, or an https URL."`
	CA       string        `yaml:"ca" eg:"id-ca.crt" doc:"Who signs the certificate of that URL; left out: the system's authorities."`
	Issuer   string        `yaml:"issuer" eg:"https://id.example.com/" doc:"What iss must be."`
	Audience string        `yaml:"audience" eg:"https://api.example.com" doc:"What aud must hold."`
	Refresh  time.Duration `yaml:"refresh" doc:"How often the keys are read again. A key that nobody knows is looked for at once. When they could not be read for an hour longer, no token is believed."`
}

// A Server bounds what clients may do.
type Server struct {
	MaxHeader     Size          `yaml:"max_header" doc:"The most that a request may have before its body."`
	HeaderTimeout time.Duration `yaml:"header_timeout" doc:"How long a client may take to send that."`
	BodyTimeout   time.Duration `yaml:"body_timeout" doc:"How long the body of a request with a key may take, and how long that of another may pause; by HTTP/2, until its response begins."`
	IdleTimeout   time.Duration `yaml:"idle_timeout" doc:"How long a connection may wait for its next request."`
	Memory        Size          `yaml:"memory" doc:"How many bytes the bodies of requests with a key may take at a time; a body counts as it comes, with at most 1MiB or as much as has come ahead of that. One for which there is no room waits for up to a second, then gets 503; meanwhile bodies of which nothing comes end with 503. A quarter is kept for bodies of up to 64KiB. Answers that are recorded or replayed may take as much again."`
}

// A Forwarded says what the upstream is told about the client.
type Forwarded struct {
	Trust Prefixes `yaml:"trust" eg:"[10.0.0.0/8]" doc:"The addresses of proxies in front of this one. What they say about the client is passed on, and this proxy adds to it. The same headers from any other address are dropped."`
}

// An Upstream is a server to which the proxy sends requests.
type Upstream struct {
	Name       string    `yaml:"name" doc:"What routes call it."`
	URL        string    `yaml:"url" doc:"Where it is: http:// or https://, and a path before that of the request if need be."`
	HTTP2      bool      `yaml:"http2" doc:"It speaks HTTP/2, in clear text if url is http. gRPC is sent by HTTP/2 without this."`
	KeepHost   bool      `yaml:"keep_host" doc:"Pass on the Host that the client sent, instead of the one in url."`
	OneRequest bool      `yaml:"one_request_per_connection" doc:"Make a new connection for every request, unless it is sent by HTTP/2. Otherwise a connection is used again: by requests with a key for the same tenant only, by others for anyone."`
	TLS        ClientTLS `yaml:"tls" doc:"For https."`
	Timeouts   Timeouts  `yaml:"timeouts" doc:"How long it may take."`
	MaxConns   int       `yaml:"max_connections" doc:"How many requests may be with it at a time, each on a connection of its own unless it speaks HTTP/2; WebSockets and streams count for as long as they last. A quarter is kept for requests with a key. One for which there is no room waits for a second, then gets 503; a free place goes to the client address that has the fewest. While requests wait, those whose clients read or send less than 10 KiB per second are ended: after 10 to 20 seconds, or after one second if the address has more than half of the places and another address waits."`

	server url.URL // URL, as Check read it
}

// Server returns the URL as Check read it.
func (u *Upstream) Server() *url.URL {
	server := u.server
	return &server
}

// A ClientTLS says how an upstream is reached.
type ClientTLS struct {
	CA         string `yaml:"ca" eg:"upstream-ca.crt" doc:"Who signs its certificate; left out: the system's authorities."`
	Cert       string `yaml:"cert" eg:"proxy.crt" doc:"The certificate that the proxy shows."`
	Key        string `yaml:"key" eg:"proxy.key" doc:"Its key."`
	ServerName string `yaml:"server_name" eg:"orders.internal" doc:"The name in its certificate; left out: the host of url."`
}

// Timeouts say how long an upstream may take.
type Timeouts struct {
	Connect time.Duration `yaml:"connect" doc:"To accept a connection, and to shake hands by TLS."`
	Answer  time.Duration `yaml:"answer" doc:"From the end of the request to the header of its answer. A command with a key whose time is over has an unknown outcome."`
	Stall   time.Duration `yaml:"stall" doc:"Between two bytes of a request with a key, or of its answer."`
	Body    time.Duration `yaml:"body" doc:"For all of the body of the answer to a request with a key, unless it is a stream of events."`
	Idle    time.Duration `yaml:"idle" doc:"How long an unused connection is kept. Write less than the server's own: a server that closes it at the moment a command is sent leaves its outcome unknown."`
}

// Headers are added to what passes, and dropped from it.
type Headers struct {
	Request HeaderChange `yaml:"request" doc:"On the way to the upstream."`
	Answer  HeaderChange `yaml:"answer" doc:"On the way back."`
}

// A HeaderChange drops headers, then adds others.
type HeaderChange struct {
	Add  map[string]string `yaml:"add" eg:"{X-Served-By: onlyonce}" doc:"Set to these values."`
	Drop []string          `yaml:"drop" eg:"[X-Internal]" doc:"Removed."`
}

// Settings say how requests are treated.
type Settings struct {
	Methods       []string      `yaml:"methods" doc:"Protected methods. Others pass untouched, and a key on them is only passed on. In a route whose match names a method: that one."`
	Operation     string        `yaml:"operation" eg:"create-order" doc:"Names what is asked for: under another name the same key is another command. Left out: the route's match; where no route matches, the method and path."`
	Key           Key           `yaml:"key" doc:"Where the key is, and what it may be."`
	Fingerprint   Fingerprint   `yaml:"fingerprint" doc:"What must be the same in a repeat."`
	Keep          time.Duration `yaml:"keep" doc:"How long an answer is kept and replayed."`
	Lease         time.Duration `yaml:"lease" doc:"How long a proxy that died may seem to be at work. It is renewed while the upstream works."`
	Wait          time.Duration `yaml:"wait" doc:"How long the repeat of a running command waits for its answer; 0s: it is refused with 409 at once."`
	PreferWait    time.Duration `yaml:"prefer_wait" doc:"The most that a client's \"Prefer: wait=N\" is granted; 0s: it is ignored."`
	Unknown       string        `yaml:"unknown" doc:"What a repeat does when nobody knows whether the upstream did it: hold refuses until somebody decides, see onlyonce records; rerun sends it again, and the upstream may then do it twice unless it looks at the key itself."`
	Answers       Answers       `yaml:"answers" doc:"What is stored."`
	Errors        Errors        `yaml:"errors" doc:"How the proxy's own refusals look."`
	Limits        Limits        `yaml:"limits" doc:"What a request, and a tenant, may use up."`
	Headers       Headers       `yaml:"headers" doc:"Headers to add and to drop, with a key or without one."`
	KeepOverrides bool          `yaml:"keep_overrides" doc:"Send on X-HTTP-Method-Override, X-HTTP-Method, X-Method-Override, X-Original-URL, X-Rewrite-URL and similar headers, by which some servers take another method or path than the request's. By default they are dropped, because a client could use them to reach a protected route as an unprotected one."`
	Upgrades      bool          `yaml:"upgrades" doc:"Let WebSockets through; other upgrades never are."`
}

// A Key says where the key is, and what it may be.
type Key struct {
	Required  bool   `yaml:"required" doc:"Refuse a request without a key; otherwise it passes unprotected."`
	Header    string `yaml:"header" doc:"The header that has it."`
	Pointer   string `yaml:"pointer" eg:"/request_id" doc:"A JSON Pointer to the key in the body. It is passed on in the header, and if the client sends one there too, both must be the same."`
	Strict    bool   `yaml:"strict" doc:"Take only an RFC 9651 string (\"k\"), not a bare token (k)."`
	MaxLength int    `yaml:"max_length" doc:"1 to 1024."`
	Chars     string `yaml:"chars" eg:"abcdefghijklmnopqrstuvwxyz0123456789:" doc:"The characters it may have; left out: a-z A-Z 0-9 - _"`
}

// A Fingerprint says what must be the same in a repeat.
type Fingerprint struct {
	Mode    string   `yaml:"mode" doc:"raw: the body's bytes; json: what the body means, whatever the order of its members and its white space; none: nothing. Method, path, query, content type and content encoding count with raw and json."`
	Headers []string `yaml:"headers" eg:"[X-Account]" doc:"Request headers that must be the same, too, with every mode. Host counts by itself where keep_host is true."`
	Fields  []string `yaml:"fields" eg:"[/amount, /currency]" doc:"With json: JSON Pointers of what counts; left out: all."`
}

// Answers say what is stored.
type Answers struct {
	Statuses     []Statuses `yaml:"statuses" eg:"[2xx, 404, 422]" doc:"Statuses below 500 that are stored; after another the key is as if it had never been used. Left out: all but 401, 403, 407, 408, 425 and 429."`
	KeepErrors   bool       `yaml:"keep_errors" doc:"Replay an answer of 500 or more too; otherwise a repeat runs again."`
	NoBody       bool       `yaml:"no_body" doc:"Do not store the body, for answers that hold secrets: a repeat gets status and header only."`
	KeepHeaders  []string   `yaml:"keep_headers" eg:"[Location, ETag]" doc:"Store these headers, Content-Type, Content-Encoding and no others. Left out: all but Set-Cookie, what else is meant for one client or one moment, and those whose name looks like that of a credential (token, secret, session, password, api-key and the like)."`
	AllowHeaders []string   `yaml:"allow_headers" eg:"[X-Page-Token]" doc:"Store these too, although their names look like those of credentials: whoever can read the store, or knows a key and its request, can read them."`
	DropHeaders  []string   `yaml:"drop_headers" eg:"[X-Request-Id]" doc:"Do not store these."`
}

// Errors say how refusals look.
type Errors struct {
	Format      string `yaml:"format" doc:"problem: RFC 9457; stripe: {\"error\":{\"type\":\"idempotency_error\", …}}; or template."`
	Template    string `yaml:"template" eg:"'{\"code\":{{.Code}},\"message\":{{.Detail}},\"retryable\":{{.Retryable}}}'" doc:"With template: a Go text template over Code, Status, Title, Detail, Retryable, RetryAfter (seconds) and Type. Every {{…}} prints itself as JSON, quotes included."`
	ContentType string `yaml:"content_type" doc:"With template."`
	DocsURL     string `yaml:"docs_url" eg:"https://api.example.com/docs/idempotency" doc:"Documents the problems; sent as their link."`

	write refusal.Writer // what Check made of the format
}

// Writer returns what writes refusals, as Check made it.
func (e *Errors) Writer() refusal.Writer { return e.write }

// Limits say what may be used up.
type Limits struct {
	Body         Size `yaml:"body" doc:"The longest body of a request with a key; more is refused with 413."`
	Other        Size `yaml:"other" doc:"The same of a request that is not protected; 0: any."`
	Answer       Size `yaml:"answer" doc:"The longest body of an answer that is stored; the repeat of a longer one gets no body."`
	NewKeys      int  `yaml:"new_keys" doc:"New keys of one tenant a minute, in each proxy and route; beyond, all its requests with a key get 429 for a while."`
	InFlight     int  `yaml:"in_flight" doc:"Keyed requests of one tenant at a time, those that wait included, in each proxy and route; more get 429."`
	TenantMemory Size `yaml:"tenant_memory" doc:"What one tenant may take of server.memory, and less while others take some; beyond, its requests get 429."`
	TenantStored Size `yaml:"tenant_stored" doc:"What one tenant may take of store.limit; beyond, its requests with a key get 429 for a while, repeats too."`
}

// A Route is a pattern, and how what it matches is treated.
type Route struct {
	Match    string `yaml:"match" eg:"POST /orders" doc:"A method, a blank and a path, as Go's http.ServeMux takes it: /orders/{id} is one segment more, /orders/ all below it."`
	Upstream string `yaml:"upstream" eg:"main" doc:"The name of an upstream; left out: the first."`
	Settings
}

// Pattern returns the method of the route's match, or "" for all, and its path.
func (r *Route) Pattern() (method, path string) {
	method, path, both := strings.Cut(r.Match, " ")
	if !both {
		return "", r.Match
	}
	return method, path
}

// New returns the defaults. It names no upstream and no tenant.
func New() *File {
	return &File{
		Listen:          "127.0.0.1:8080",
		LogFormat:       "json",
		Unmatched:       "pass",
		LogLevel:        "info",
		LogKeys:         "hash",
		ShutdownTimeout: 30 * time.Second,
		TLS:             ServerTLS{MinVersion: "1.2"},
		Store:           Store{URL: "sqlite:onlyonce-proxy.db", PurgeEvery: 10 * time.Minute, Limit: 64 << 30},
		Tenant:          Tenant{NewPerAddress: 100, JWT: JWT{Refresh: 10 * time.Minute}},
		Server: Server{
			MaxHeader:     32 << 10,
			HeaderTimeout: 5 * time.Second,
			BodyTimeout:   30 * time.Second,
			IdleTimeout:   time.Minute,
			Memory:        64 << 20,
		},
		Defaults: Settings{
			Methods:     []string{"POST", "PATCH"},
			Key:         Key{Header: "Idempotency-Key", MaxLength: 255},
			Fingerprint: Fingerprint{Mode: "raw"},
			Keep:        24 * time.Hour,
			Lease:       30 * time.Second,
			Unknown:     "rerun",
			Errors:      Errors{Format: "problem", ContentType: "application/json"},
			Limits:      Limits{Body: 1 << 20, Answer: 1 << 20, NewKeys: 600_000, InFlight: 4096, TenantMemory: 32 << 20, TenantStored: 16 << 30},
			Upgrades:    true,
		},
	}
}

// NewUpstream returns an upstream's defaults.
func NewUpstream() Upstream {
	return Upstream{Name: "main", MaxConns: 1024, Timeouts: Timeouts{Connect: 5 * time.Second, Answer: time.Minute, Stall: time.Minute, Body: 10 * time.Minute, Idle: time.Second}}
}
