// Package proxyfile reads and prints the configuration file of onlyonce proxy, which is YAML.
//
// Parse reports all the mistakes in a file at once, each with its line and what to write
// instead. Parsing the output of Print yields the same settings.
package proxyfile

import (
	"net/url"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/rejection"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/shares"
	"github.com/onlyonce-go/onlyonce/internal/statuses"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// A File holds the settings of a file. A setting that the file leaves out has its default
// value; in a route, it has the value from Defaults.
//
// The tags of a field are the setting's name in the file (yaml), the comment that Print
// writes above it (doc), the example that Print writes for an empty value (eg), and
// whether a change needs a restart of the proxy (restart): always, or only if the named
// setting of the section is added or removed.
type File struct {
	Listen          string        `yaml:"listen" restart:"always" doc:"Address on which the proxy listens. With port 0, it uses a free port."`
	Admin           string        `yaml:"admin" restart:"always" eg:"127.0.0.1:9090" doc:"Address for /healthz, /readyz, /metrics and the console, which are never served on the listen address. Default: none."`
	Console         Console       `yaml:"console" restart:"always" doc:"The console for operators, at the admin address under /console/."`
	LogFormat       string        `yaml:"log_format" restart:"always" doc:"Format of the log on standard error: json or text."`
	LogLevel        string        `yaml:"log_level" restart:"always" doc:"Lowest level that is logged: debug, info, warn or error. Replays are logged at info, executed commands at debug."`
	LogKeys         string        `yaml:"log_keys" restart:"always" doc:"How idempotency keys are logged: hash (the beginning of the record's ID) or raw. Anyone who knows a key and its request can read the stored response."`
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" restart:"always" doc:"How long running requests may take to finish after SIGINT or SIGTERM."`
	AcceptRisks     []string      `yaml:"accept_risks" eg:"[synchronous]" doc:"Findings of onlyonce doctor that are accepted. file-mode stands for all files that other users of the machine can use: the store's, private keys, and files with secrets."`
	TLS             ServerTLS     `yaml:"tls" restart:"cert" doc:"TLS for clients. The files are reloaded when they change, and on SIGHUP. Without cert and key, the proxy speaks plain HTTP."`
	Store           Store         `yaml:"store" restart:"always" doc:"Where records are stored."`
	Tenant          Tenant        `yaml:"tenant" doc:"How a request's tenant is identified. Two tenants can use the same key and never see each other's responses. Set exactly one of header, jwt, authorization and single."`
	Server          Server        `yaml:"server" doc:"Limits on how much a client may send, and on how long it may take."`
	Forwarded       Forwarded     `yaml:"forwarded" doc:"X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto and Forwarded are always set from the connection. The values that a client sends are dropped, and so are other headers that identify the client (X-Forwarded-*, X-Real-IP, Remote-User, X-Remote-*, X-Auth-Request-*, X-Client-Cert, X-SSL-* and similar ones)."`
	Upstreams       []Upstream    `yaml:"upstreams" doc:"The servers behind the proxy. Requests whose route names no upstream go to the first one. The upstream is never taken from the request."`
	Defaults        Settings      `yaml:"defaults" doc:"How requests are treated. A route can override each of these settings."`
	Unmatched       string        `yaml:"unmatched" doc:"What happens to a request that matches no route. pass: it follows defaults, and passes unprotected if it has no key. reject: it is rejected if it has no key and its method is protected (defaults.methods), so that a path for which you forgot a route is not left unprotected."`
	Routes          []Route       `yaml:"routes" doc:"Requests that are treated differently. The most specific pattern applies, as in Go's http.ServeMux. For requests that match no route, see unmatched."`

	name  string
	lines map[string]int // the line of each setting in the file, by its path, such as routes[0].keep
}

// A ServerTLS configures TLS between clients and the proxy.
type ServerTLS struct {
	Cert       string `yaml:"cert" eg:"server.crt" doc:"Certificate with its chain, PEM."`
	Key        string `yaml:"key" eg:"server.key" doc:"Private key of the certificate, PEM."`
	ClientCA   string `yaml:"client_ca" eg:"clients.crt" doc:"CA certificates, PEM. Clients must present a certificate that one of them has signed."`
	MinVersion string `yaml:"min_version" doc:"Lowest TLS version: \"1.2\" or \"1.3\"."`
}

// A Console configures the console for operators.
type Console struct {
	Tokens string   `yaml:"tokens" eg:"/etc/onlyonce/console-tokens" doc:"File whose lines are a name, a role (reader or writer) and the SHA-256 of a token. Without it, the console is off."`
	Redact []string `yaml:"redact" eg:"[/customer/email, phone]" doc:"JSON Pointers, and names of headers and JSON members, whose values the console does not show, in addition to the usual names of secrets."`
}

// A Store configures where records are stored.
type Store struct {
	URL                   string        `yaml:"url" doc:"URL of the store: memory://, which loses everything when the process ends; sqlite:PATH; postgres://USER:PASSWORD@HOST/DATABASE; mysql://USER:PASSWORD@HOST/DATABASE; or redis://USER:PASSWORD@HOST:PORT, nats://USER:PASSWORD@HOST:PORT/STREAM, etcd://USER:PASSWORD@HOST:PORT/PREFIX or dynamodb://REGION/TABLE, which onlyonce migrate has set up. Several proxies that share a store on a server give the same guarantees as one."`
	URLFile               string        `yaml:"url_file" eg:"/run/secrets/onlyonce-store" doc:"File that contains the URL, instead of url, so that its password is neither here nor in the list of processes."`
	FingerprintSecretFile string        `yaml:"fingerprint_secret_file" eg:"/run/secrets/onlyonce-fingerprint" doc:"File with at least 16 random characters, with which the fingerprints of requests in the store are keyed. Without a secret, anyone who can read the store can recover a short body by trying all possible bodies. All proxies that share a store need the same secret. After a change, repeats of earlier requests are rejected with 422 until their records expire. Default: for SQLite a generated file beside the store (PATH.secret), for memory:// a random secret, for a server none."`
	EncryptionKeysFile    string        `yaml:"encryption_keys_file" eg:"/run/secrets/onlyonce-keys" doc:"File with the keys by which responses, errors and steps in the store are encrypted. Each line has the ID of a key and its 32 bytes in hexadecimal, and with several keys, the line \"current ID\" names the one for new records. The file is read again while the proxy runs. All proxies that share a store need the same keys. Default: what is stored is not encrypted."`
	AcceptPlaintext       bool          `yaml:"accept_plaintext" doc:"Replay responses that are not encrypted, too: those from before encryption_keys_file. Without it, repeats of their requests get 503. While it is set, someone who can write to the store can replace a response."`
	NoMigrate             bool          `yaml:"no_migrate" doc:"Never create or change tables in a SQL database. If they are missing or of another version, the proxy does not start: run onlyonce migrate first."`
	PurgeEvery            time.Duration `yaml:"purge_every" doc:"Interval at which expired records are deleted from a SQL database. Other stores delete them by themselves."`
	Cache                 Size          `yaml:"cache" eg:"64MiB" doc:"Memory for responses that this proxy replays without asking the store, even while the store is unreachable. It is divided equally among the combinations of lease, keep, wait and unknown that defaults and the routes use. Responses are in clear there, even if the store encrypts them. With 0, every repeat asks the store."`
	CacheMaxAge           time.Duration `yaml:"cache_max_age" doc:"How long a response is replayed from cache after it was put there. A record that is deleted or changed elsewhere, for example with onlyonce records, is replayed for at most that long; a decision in this proxy's console has effect at once."`
	Limit                 Size          `yaml:"limit" doc:"Bytes of records that one proxy may store within keep. Each record counts 512 bytes, plus its error text and the header and body of its response. Beyond the limit, requests with a key get 503 for a while, repeats included. The count is kept in the process, begins at zero, and falls at a constant rate, by the full limit within keep."`
}

// A Tenant configures how the tenant of a request is identified.
type Tenant struct {
	Header        string   `yaml:"header" eg:"X-Tenant-ID" doc:"Request header that names the tenant. A component in front of the proxy must verify it and replace what clients send; see from."`
	From          Prefixes `yaml:"from" eg:"[127.0.0.0/8, \"::1/128\"]" doc:"Addresses from which the proxy accepts the header; it drops the header of all others. Default: this machine, or with tls.client_ca clients with a certificate."`
	JWT           JWT      `yaml:"jwt" doc:"A claim of the token in Authorization: Bearer, which the proxy verifies."`
	Authorization bool     `yaml:"authorization" doc:"A digest of the Authorization header: each distinct header is a tenant."`
	NewPerAddress int      `yaml:"new_per_address" doc:"With authorization, anyone can invent tenants. This is how many new tenants one client address may introduce per minute, and also at once. Requests of further new tenants get 429. For IPv6, an address is its first 64 bits. For requests through a proxy named in forwarded.trust, it is the address of that proxy's client."`
	Single        bool     `yaml:"single" doc:"All callers share one tenant, and may see each other's responses."`
}

// Sources returns the names of the settings that identify a tenant, of which OneSource allows
// one.
func (t *Tenant) Sources() (names []string) {
	for _, source := range []struct {
		name  string
		given bool
	}{{"header", t.Header != ""}, {"jwt", t.JWT.given()}, {"authorization", t.Authorization}, {"single", t.Single}} {
		if source.given {
			names = append(names, source.name)
		}
	}
	return names
}

// OneSource describes the mistake if not exactly one of the sources of a tenant is set, or returns "".
// The sources have the names under which they were set, and none is the text if there are none.
func OneSource(sources []string, none string) string {
	switch len(sources) {
	case 0:
		return none
	case 1:
		return ""
	}
	return strings.Join(sources, " and ") + " are set: leave only one"
}

// A JWT configures how tokens are verified.
type JWT struct {
	Claim    string        `yaml:"claim" eg:"sub" doc:"Claim whose value is the tenant."`
	JWKS     string        `yaml:"jwks" eg:"https://id.example.com/jwks.json" doc:"Public keys that verify tokens: a file, or an https URL."`
	CA       string        `yaml:"ca" eg:"id-ca.crt" doc:"CA certificates for that URL; default: the system's."`
	Issuer   string        `yaml:"issuer" eg:"https://id.example.com/" doc:"Required value of iss."`
	Audience string        `yaml:"audience" eg:"https://api.example.com" doc:"Value that aud must contain."`
	Refresh  time.Duration `yaml:"refresh" doc:"How often the keys are reloaded. They are also reloaded when a token has an unknown key ID and, after a failure, every minute. If they cannot be reloaded for another hour, no token is accepted."`
}

// given reports whether any setting for tokens is set, apart from the interval at which their
// keys are read.
func (j *JWT) given() bool {
	set := *j
	set.Refresh = 0
	return set != JWT{}
}

// A Server limits how much clients may send, and how long they may take.
type Server struct {
	MaxHeader     Size          `yaml:"max_header" restart:"always" doc:"Largest request header, including the request line. Over HTTP/1, a header also has at most 1,000 fields."`
	HeaderTimeout time.Duration `yaml:"header_timeout" restart:"always" doc:"Time that a client has to send the request header."`
	BodyTimeout   time.Duration `yaml:"body_timeout" doc:"For a request with a key: the time that its whole body may take. For any other request: the longest pause within the body; with HTTP/2, until its response begins."`
	IdleTimeout   time.Duration `yaml:"idle_timeout" restart:"always" doc:"How long a connection may wait for its next request."`
	Memory        Size          `yaml:"memory" doc:"Memory for the bodies of requests with a key, in bytes. A body counts as it arrives, plus up to 1MiB or as much as has arrived. If there is no memory for a body, its request waits for up to a second and then gets 503; meanwhile, requests whose bodies have stopped arriving get 503. A quarter is reserved for bodies of up to 64KiB. Responses that are recorded or replayed may use the same amount in addition."`
}

// A Forwarded configures which headers about the client are passed on.
type Forwarded struct {
	Trust Prefixes `yaml:"trust" eg:"[10.0.0.0/8]" doc:"Addresses of proxies in front of this one. Their headers about the client are passed on, and this proxy adds to them. The same headers from other addresses are dropped."`
}

// An Upstream is a server to which the proxy sends requests.
type Upstream struct {
	Name       string    `yaml:"name" doc:"Name by which routes refer to it."`
	URL        string    `yaml:"url" doc:"URL of the server: http:// or https://, optionally with a path that is prepended to the request's path."`
	HTTP2      bool      `yaml:"http2" doc:"The upstream speaks HTTP/2: in clear text if url is http. Nothing is sent to it otherwise. gRPC is always sent over HTTP/2."`
	KeepHost   bool      `yaml:"keep_host" doc:"Pass on the client's Host header instead of the host in url."`
	OneRequest bool      `yaml:"one_request_per_connection" doc:"Use a new connection for every request that is not sent over HTTP/2. Otherwise, a connection that has carried a request with a key is reused for the same tenant only, and one that has not for any request."`
	TLS        ClientTLS `yaml:"tls" doc:"TLS settings for an https URL."`
	Timeouts   Timeouts  `yaml:"timeouts" doc:"Time limits for the upstream."`
	MaxConns   int       `yaml:"max_connections" doc:"Concurrent requests to the upstream, each on a connection of its own unless it speaks HTTP/2; WebSockets and streams count while they last. A quarter is reserved for requests with a key. If all are in use, a request waits for a second and then gets 503. A connection that becomes free goes to the client address that uses the fewest. While requests wait, those whose clients read or send less than 10 KiB per second are ended: after 10 to 20 seconds, or after one second if the address uses more than half and another address waits."`

	server url.URL // the parsed URL, set by Check
}

// Server returns the URL, which Check has parsed.
func (u *Upstream) Server() *url.URL {
	server := u.server
	return &server
}

// A ClientTLS configures TLS between the proxy and an upstream.
type ClientTLS struct {
	CA         string `yaml:"ca" eg:"upstream-ca.crt" doc:"CA certificates for the upstream's certificate; default: the system's."`
	Cert       string `yaml:"cert" eg:"proxy.crt" doc:"Certificate that the proxy presents."`
	Key        string `yaml:"key" eg:"proxy.key" doc:"Private key of the certificate."`
	ServerName string `yaml:"server_name" eg:"orders.internal" doc:"Name in the upstream's certificate; default: the host in url."`
}

// Timeouts limit how long an upstream may take.
type Timeouts struct {
	Connect  time.Duration `yaml:"connect" doc:"To accept a connection, and to complete the TLS handshake."`
	Response time.Duration `yaml:"response" doc:"From the end of the request to the header of its response. A command with a key that takes longer has an unknown outcome."`
	Stall    time.Duration `yaml:"stall" doc:"Between two bytes of a request with a key, or of its response; with HTTP/2, also between two pieces of any other request that the upstream takes, until its response begins."`
	Body     time.Duration `yaml:"body" doc:"For the whole body of the response to a request with a key, unless it is an event stream. The time that the client needs to read it does not count."`
	Idle     time.Duration `yaml:"idle" doc:"How long an unused connection is kept. Set less than the server's own limit: if the server closes the connection just as a command is sent, the outcome is unknown."`
}

// Headers configures the headers that are set and removed.
type Headers struct {
	Request  HeaderChange `yaml:"request" doc:"On the way to the upstream."`
	Response HeaderChange `yaml:"response" doc:"On the way back to the client."`
}

// A HeaderChange removes headers, and then sets others.
type HeaderChange struct {
	Add  map[string]string `yaml:"add" eg:"{X-Served-By: onlyonce}" doc:"Headers to set, with their values."`
	Drop []string          `yaml:"drop" eg:"[X-Internal]" doc:"Headers to remove."`
}

// Settings configures how requests are treated.
type Settings struct {
	Methods       []string      `yaml:"methods" doc:"Methods that are protected. Requests with other methods pass unchanged, and a key on them is only passed on. For a route whose match names a method: that method."`
	Operation     string        `yaml:"operation" eg:"create-order" doc:"Name of the operation: with another name, the same key is another command. Default: the route's match, or for a request that matches no route, its method and path."`
	Key           Key           `yaml:"key" doc:"Where the key is, and which keys are valid."`
	Fingerprint   Fingerprint   `yaml:"fingerprint" doc:"What a repeat must have in common with the first request."`
	Summary       []string      `yaml:"summary" eg:"[path, /amount, X-Order-ID]" doc:"Parts of the request that its record keeps, for the person who has to decide about an unknown outcome. Entries are path for the method and the path without the query, which every summary has, JSON Pointers to strings, numbers and booleans in the body, and the names of headers. At most 1 KiB in all, and 200 bytes of a value. Values whose names look like those of secrets (token, password, card_number and the like) are replaced. Anyone who can read the store can read the other values, unless they are encrypted. Default: nothing."`
	Keep          time.Duration `yaml:"keep" doc:"How long a response is kept and replayed."`
	Remember      time.Duration `yaml:"remember" doc:"How long a key is remembered after its request. If that is longer than keep, a repeat that comes later than keep gets 410 instead of being sent again. With 0s, as long as keep."`
	Lease         time.Duration `yaml:"lease" doc:"How long a command stays locked after the proxy that ran it died. The lease is renewed while the upstream works."`
	Wait          time.Duration `yaml:"wait" doc:"How long a repeat of a running command waits for its response. With 0s, it gets 409 immediately."`
	PreferWait    time.Duration `yaml:"prefer_wait" doc:"Longest wait that a client can request with \"Prefer: wait=N\". With 0s, the header is ignored."`
	Unknown       string        `yaml:"unknown" doc:"What happens to a repeat of a command whose outcome is unknown. hold: it is rejected until a person decides; see onlyonce records. rerun: it is sent again, and the upstream may run it twice unless it checks the key."`
	Responses     Responses     `yaml:"responses" doc:"Which responses are stored, and which parts of them."`
	Errors        Errors        `yaml:"errors" doc:"Format of the proxy's own error responses."`
	Limits        Limits        `yaml:"limits" doc:"Limits for a request and for a tenant."`
	Headers       Headers       `yaml:"headers" doc:"Headers to set and to remove, on requests with and without a key."`
	KeepOverrides bool          `yaml:"keep_overrides" doc:"Pass on X-HTTP-Method-Override, X-HTTP-Method, X-Method-Override, X-Original-URL, X-Rewrite-URL and similar headers, with which some servers replace the request's method or path. By default they are dropped, because a client could use them to reach a protected route disguised as an unprotected one."`
	Upgrades      bool          `yaml:"upgrades" doc:"Allow WebSockets; other upgrades are never allowed."`
}

// A Key configures where the key is, and which keys are valid.
type Key struct {
	Required  bool   `yaml:"required" doc:"Reject a request without a key; otherwise it passes unprotected."`
	Header    string `yaml:"header" doc:"Header that contains the key."`
	Pointer   string `yaml:"pointer" eg:"/request_id" doc:"JSON Pointer to the key in the body. The key is passed on in the header; if the client also sends the header, both must be equal."`
	Strict    bool   `yaml:"strict" doc:"Accept only an RFC 9651 string (\"k\"), not a bare token (k)."`
	MaxLength int    `yaml:"max_length" doc:"Longest key, in characters: 1 to 1024."`
	Chars     string `yaml:"chars" eg:"abcdefghijklmnopqrstuvwxyz0123456789:" doc:"Characters that a key may contain. Default: a-z A-Z 0-9 - _"`
}

// A Fingerprint configures which parts of a request must be the same in a repeat.
type Fingerprint struct {
	Mode    string   `yaml:"mode" doc:"How bodies are compared. raw: byte for byte. json: by meaning, whatever the order of members and the white space. none: not at all. With raw and json, the method, path, query, content type and content encoding must also be the same."`
	Headers []string `yaml:"headers" eg:"[X-Account]" doc:"Request headers that must also be the same, in every mode. Host is compared automatically if keep_host is true."`
	Fields  []string `yaml:"fields" eg:"[/amount, /currency]" doc:"With json: JSON Pointers to the values that are compared; default: all values."`
}

// Responses configures which responses are stored.
type Responses struct {
	Statuses        statuses.Set `yaml:"statuses" eg:"[2xx, 404, 422]" doc:"Statuses below 500 that are stored; after any other status, the key counts as if the request had not been sent. Default: all but 401, 403, 407, 408, 421, 425 and 429. A 409 with Retry-After is never stored."`
	UnknownStatuses statuses.Set `yaml:"unknown_statuses" eg:"[502, 503, 504, 520-529]" doc:"Statuses of 500 or more after which it is unknown whether the command ran. Also name those with which a load balancer or sidecar between proxy and server responds when it has lost the server. 499 always counts. Default: 502, 504, and 520 to 529."`
	KeepErrors      bool         `yaml:"keep_errors" doc:"Also store and replay responses with a status of 500 or more; otherwise a repeat runs again."`
	NoBody          bool         `yaml:"no_body" doc:"Do not store the body, for responses that contain secrets: a repeat gets the status and header only."`
	KeepHeaders     []string     `yaml:"keep_headers" eg:"[Location, ETag]" doc:"Store these headers, Content-Type and Content-Encoding, and no others. Default: all but Set-Cookie, other headers that are meant for one client or one moment, and those whose name looks like that of a credential (token, secret, session, password, api-key and the like)."`
	AllowHeaders    []string     `yaml:"allow_headers" eg:"[X-Page-Token]" doc:"Also store these headers, although their names look like those of credentials. Anyone who can read the store, or knows a key and its request, can read them."`
	DropHeaders     []string     `yaml:"drop_headers" eg:"[X-Request-Id]" doc:"Do not store these headers."`
}

// Errors configures the format of rejections.
type Errors struct {
	Format      string `yaml:"format" doc:"problem: RFC 9457; stripe: {\"error\":{\"type\":\"idempotency_error\", …}}; or template."`
	Template    string `yaml:"template" eg:"'{\"code\":{{.Code}},\"message\":{{.Detail}},\"retryable\":{{.Retryable}}}'" doc:"With format: template, a Go text template over Code, Status, Title, Detail, Retryable, RetryAfter (seconds) and Type. Every {{…}} prints its value as JSON, including the quotes."`
	ContentType string `yaml:"content_type" doc:"Content type of a template's output."`
	DocsURL     string `yaml:"docs_url" eg:"https://api.example.com/docs/idempotency" doc:"Link to your documentation of the errors."`

	write rejection.Writer // set by Check
}

// Writer returns the writer of rejections, which Check has made.
func (e *Errors) Writer() rejection.Writer { return e.write }

// Limits configures how much a request and a tenant may use.
type Limits struct {
	Body         Size `yaml:"body" doc:"Largest body of a request with a key; a larger one gets 413."`
	Other        Size `yaml:"other" doc:"Largest body of a request that is not protected; 0 means no limit."`
	Response     Size `yaml:"response" doc:"Largest response body that is stored; a repeat of a larger one gets no body."`
	NewKeys      int  `yaml:"new_keys" doc:"New keys of one tenant per minute, in each proxy and route. Beyond the limit, all its requests with a key get 429 for a while."`
	InFlight     int  `yaml:"in_flight" doc:"Concurrent requests with a key of one tenant, including those that wait, in each proxy and route. Further requests get 429."`
	TenantMemory Size `yaml:"tenant_memory" doc:"Memory that one tenant may use of server.memory; less while other tenants use some. Beyond it, its requests get 429."`
	TenantStored Size `yaml:"tenant_stored" doc:"Bytes that one tenant may use of store.limit. Beyond it, its requests with a key get 429 for a while, repeats included."`
}

// A Route is a pattern with the settings for the requests that it matches.
type Route struct {
	Match    string `yaml:"match" eg:"POST /orders" doc:"A method, a space and a path, as in Go's http.ServeMux: /orders/{id} matches one more segment, /orders/ the whole tree."`
	Upstream string `yaml:"upstream" eg:"main" doc:"Name of an upstream; default: the first."`
	Settings
}

// Pattern returns the method and the path of the route's match. The method is "" if the match
// names none.
func (r *Route) Pattern() (method, path string) {
	method, path, both := strings.Cut(r.Match, " ")
	if !both {
		return "", r.Match
	}
	return method, path
}

// The values of settings that take one of a few words.
const (
	UnknownRerun    = "rerun"
	UnknownHold     = "hold"
	UnmatchedPass   = "pass"
	UnmatchedReject = "reject"
	FingerprintRaw  = "raw"
	FingerprintJSON = "json"
	FingerprintNone = "none"
	TLS12           = "1.2"
	TLS13           = "1.3"

	formatProblem  = "problem"
	formatStripe   = "stripe"
	formatTemplate = "template"
)

// SummaryPath is the entry of a summary that stands for the method and the path.
const SummaryPath = "path"

// The words that each of those settings takes.
var (
	UnknownPolicies   = cli.Choice{UnknownRerun, UnknownHold}
	FingerprintModes  = cli.Choice{FingerprintRaw, FingerprintJSON, FingerprintNone}
	unmatchedPolicies = cli.Choice{UnmatchedPass, UnmatchedReject}
	errorFormats      = cli.Choice{formatProblem, formatStripe, formatTemplate}
	tlsVersions       = cli.Choice{TLS12, TLS13}
)

// New returns a File with the default settings, without upstreams and tenants.
func New() *File {
	return &File{
		Listen:          server.DefaultListen,
		LogFormat:       logging.DefaultFormat,
		LogLevel:        logging.DefaultLevel,
		LogKeys:         logging.DefaultKeys,
		ShutdownTimeout: server.DefaultShutdownTimeout,
		Unmatched:       UnmatchedPass,
		TLS:             ServerTLS{MinVersion: TLS12},
		Store:           Store{URL: "sqlite:onlyonce-proxy.db", PurgeEvery: defaults.PurgeEvery, CacheMaxAge: onlyonce.DefaultCacheMaxAge, Limit: httponce.DefaultMaxStored},
		Tenant:          Tenant{NewPerAddress: 100, JWT: JWT{Refresh: 10 * time.Minute}},
		Server: Server{
			MaxHeader:     proxy.MaxHeaderBytes,
			HeaderTimeout: proxy.ReadHeaderTimeout,
			BodyTimeout:   proxy.DefaultBodyTimeout,
			IdleTimeout:   server.IdleTimeout,
			Memory:        httponce.DefaultMaxMemory,
		},
		Defaults: Settings{
			Methods:     httponce.DefaultMethods(),
			Key:         Key{Header: httponce.DefaultHeader, MaxLength: httponce.DefaultMaxKeyLength},
			Fingerprint: Fingerprint{Mode: FingerprintRaw},
			Keep:        onlyonce.DefaultKeep,
			Lease:       onlyonce.DefaultLease,
			Unknown:     UnknownRerun,
			Errors:      Errors{Format: formatProblem, ContentType: "application/json"},
			Limits: Limits{
				Body: httponce.DefaultMaxBody, Response: httponce.DefaultMaxResponse, NewKeys: httponce.DefaultMaxNewKeys, InFlight: httponce.DefaultMaxInFlight,
				TenantMemory: Size(shares.Memory(httponce.DefaultMaxMemory)), TenantStored: Size(shares.Stored(httponce.DefaultMaxStored)),
			},
			Upgrades: true,
		},
	}
}

// NewUpstream returns an Upstream with the default settings.
func NewUpstream() Upstream {
	d := proxy.UpstreamDefaults()
	return Upstream{Name: "main", MaxConns: d.MaxConns, Timeouts: Timeouts{
		Connect: d.DialTimeout, Response: d.HeaderTimeout, Stall: d.StallTimeout, Body: d.BodyTimeout, Idle: d.KeepIdle,
	}}
}
