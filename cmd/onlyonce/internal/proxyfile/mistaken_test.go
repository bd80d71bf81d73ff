package proxyfile

// everything is a file in which every setting but those that contradict is not
// the default.
const everything = `
listen: ":8443"
admin: 127.0.0.1:9091
log_format: text
log_level: warn
shutdown_timeout: 1m30s
tls: {cert: a.crt, key: a.key, client_ca: c.crt, min_version: "1.3"}
accept_risks: [fsync]
store: {url: "postgres://u:p w@h/d", fingerprint_secret_file: secret, purge_every: 1h1s}
tenant:
  jwt: {claim: "https://x/tenant", jwks: https://id/x, ca: ca.crt, issuer: "yes", audience: "12", refresh: 1m}
server: {max_header: 16KiB, header_timeout: 1s, body_timeout: 2s, idle_timeout: 3s}
forwarded: {trust: [10.0.0.0/8, "::1"]}
upstreams:
  - {name: a, url: "https://a:1/base", http2: true, keep_host: true, tls: {ca: x, cert: y, key: z, server_name: n}, timeouts: {connect: 1s, response: 2s, stall: 3s, idle: 4s}}
  - {name: b, url: "http://b"}
defaults:
  methods: [POST, PUT]
  operation: "a \"b\" \\ ü \u2028 #: c"
  key: {required: true, header: X-Key, pointer: /a~1b, strict: true, max_length: 7, chars: "ab:"}
  fingerprint: {mode: json, fields: [/a, /b~0]}
  keep: 1h
  lease: 5s
  wait: 6s
  prefer_wait: 7s
  unknown: hold
  responses: {statuses: [2xx, 404], unknown_statuses: [502, 520-529], keep_errors: true, no_body: true, keep_headers: [ETag]}
  errors: {format: template, template: "{\n\"code\":\t{{.Code}}}", content_type: text/x, docs_url: https://x/y}
  limits: {body: 1, other: 2KiB, response: 3MiB, new_keys: 4, in_flight: 5}
  headers: {request: {add: {X-A: "1: 2", X-B: ""}, drop: [X-C]}, response: {add: {X-D: d}, drop: [X-E, X-F]}}
  upgrades: false
routes:
  - match: DELETE /x/{id}
    upstream: b
    operation: ""
    responses: {keep_headers: [], drop_headers: [X-G]}
    headers: {request: {add: {}}}
  - match: /
    methods: [POST]
    wait: 0s
`

// mistaken are files, which begin with the least unless they begin with "!", and
// what is said of them.
var mistaken = map[string]string{
	// Files that are not YAML, or have another shape.
	"!":                       "p.yaml: tenant: this is missing: set exactly one of header, jwt, authorization: true and single: true\np.yaml: upstreams: this is missing: name a server, such as [{url: \"http://127.0.0.1:3000\"}]",
	"!- a":                    "p.yaml:1: this is a list: write a section with listen, admin, console, log_format, log_level, log_keys, shutdown_timeout, accept_risks, tls, store, tenant, server, forwarded, upstreams, defaults, unmatched, routes",
	"a: [":                    "p.yaml:4: this is not YAML: did not find expected node content",
	"a: \"\x01\"":             "p.yaml: this is not YAML: control characters are not allowed",
	"---\nlisten: x":          "p.yaml:4: a second document begins here: write one, without ---",
	"tls:\n  cretificate: x":  "p.yaml:5: there is no setting \"cretificate\" in tls. Write one of cert, key, client_ca, min_version",
	"tls:\n  client-ca: x":    "p.yaml:5: there is no setting \"client-ca\" in tls; is it client_ca? Write one of cert, key, client_ca, min_version",
	"tls:\n  cret: x":         "p.yaml:5: there is no setting \"cret\" in tls. Write one of cert, key, client_ca, min_version",
	"tls:\n  crt: x":          "p.yaml:5: there is no setting \"crt\" in tls; is it cert? Write one of cert, key, client_ca, min_version",
	"listen: a:1\nlisten: a":  "p.yaml:5: listen: this is given twice, first in line 4: leave one out",
	"listen: {a: b}":          "p.yaml:4: listen: this is a section: write a text",
	"listen: true":            "p.yaml:4: listen: true is not a text: put it into quotes if it is meant as one",
	"listen: \"a\\0\"":        "p.yaml:4: listen: this holds a NUL character: leave it out",
	"tls: x":                  "p.yaml:4: tls: this is one value: write a section with cert, key, client_ca, min_version",
	"routes: {match: POST /}": "p.yaml:4: routes: this is a section: write a list",
	"defaults:\n  <<: {}":     "p.yaml:5: defaults: << is not supported: write what routes share into defaults",
	"defaults:\n  headers:\n    response: {add: [a]}":                "p.yaml:6: defaults.headers.response.add: this is a list: write names and values, such as {X-Served-By: onlyonce}",
	"defaults:\n  headers:\n    response: {add: {a: [b]}}":           "p.yaml:6: defaults.headers.response.add.a: this is a list: write a text",
	"defaults:\n  headers:\n    response: {add: {a: b,\n     a: c}}": "p.yaml:7: defaults.headers.response.add.a: this is given twice: leave one out",
	"defaults:\n  keep: 30":                                          "p.yaml:5: defaults.keep: \"30\" is not valid here: write a duration such as 500ms, 30s or 24h",
	"defaults:\n  remember: 1h":                                      "p.yaml:5: defaults.remember: 1h0m0s is shorter than keep, which is 24h0m0s: raise it, or write 0s for as long as keep",
	"defaults:\n  remember: -1s":                                     "p.yaml:5: defaults.remember: -1s is out of bounds: write 10ms to 10000h0m0s, or 0s for as long as keep",
	"defaults:\n  keep: -1s\n  remember: 1h":                         "p.yaml:5: defaults.keep: -1s is out of bounds: write 10ms to 10000h0m0s",
	"defaults:\n  upgrades: yes":                                     "p.yaml:5: defaults.upgrades: \"yes\" is not valid here: write true or false",
	"defaults:\n  limits: {body: 1MB}":                               "p.yaml:5: defaults.limits.body: \"1MB\" is not valid here: write a size such as 64KiB or 1MiB",
	"defaults:\n  limits: {body: 99999999999999GiB}":                 "p.yaml:5: defaults.limits.body: \"99999999999999GiB\" is not valid here: write a size such as 64KiB or 1MiB",
	"defaults:\n  limits: {new_keys: 1.5}":                           "p.yaml:5: defaults.limits.new_keys: \"1.5\" is not valid here: write a whole number",
	"defaults:\n  fingerprint: {mode: json, fields: /a}":             "p.yaml:5: defaults.fingerprint.fields: this is one value: write a list",

	// The process.
	"listen: 8080":          "p.yaml:4: listen: \"8080\" is not an address: write one such as 127.0.0.1:8080",
	"listen: a:70000":       "p.yaml:4: listen: \"a:70000\" is not an address: write one such as 127.0.0.1:8080",
	"admin: 127.0.0.1:8080": "p.yaml:4: admin: clients connect to this address: write another one, such as 127.0.0.1:9090",
	"console: {tokens: a}":  "p.yaml:4: console.tokens: the console is served at the admin address: set admin, too",
	"!tenant: {single: true}\nstore: {url: \"\"}\nupstreams: [{url: \"http://a\"}]": "p.yaml:2: store.url: the URL is empty: write memory://, sqlite:PATH, postgres://…, mysql://…, redis://…, nats://…, etcd://… or dynamodb://…",
	"log_level: trace":                       "p.yaml:4: log_level: \"trace\" is not known: write debug, info, warn or error",
	"log_format: xml":                        "p.yaml:4: log_format: \"xml\" is not known: write json or text",
	"shutdown_timeout: -1s":                  "p.yaml:4: shutdown_timeout: -1s is out of bounds: write 10ms to 10000h0m0s",
	"tls: {cert: a}":                         "p.yaml:4: tls: cert and key go together: name both files, or neither",
	"tls:\n  client_ca: a":                   "p.yaml:5: tls.client_ca: without cert and key there is no TLS, so no client presents a certificate: name them too",
	"tls: {min_version: 1.1}":                "p.yaml:4: tls.min_version: \"1.1\" is not known: write 1.2 or 1.3",
	"server: {max_header: 1GiB}":             "p.yaml:4: server.max_header: 1GiB is out of bounds: write 1KiB to 1MiB",
	"forwarded:\n  trust:\n   - 10.0.0.0/99": "p.yaml:6: forwarded.trust[0]: \"10.0.0.0/99\" is not a range of addresses: write one such as 10.0.0.0/8, or one address",

	// Tenants.
	"!tenant: {header: X, single: true}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]":                          "p.yaml:1: tenant: header and single are set: leave only one",
	"!tenant: {header: a b}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]":                                      "p.yaml:1: tenant.header: \"a b\" is not a header name: write one such as X-Tenant-ID",
	"!tenant: {header: Host}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]":                                     "p.yaml:1: tenant.header: Host is the proxy's own, or of one connection only: name another header",
	"!tenant: {single: true, from: [\"::1\"]}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]":                    "p.yaml:1: tenant.from: these are addresses from which tenant.header is trusted: set tenant.header too, or leave them out",
	"!tenant: {jwt: {claim: sub}}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]":                                "p.yaml:1: tenant.jwt.jwks: this is missing: name the file or https URL of the public keys",
	"!tenant: {jwt: {jwks: a}}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]":                                   "p.yaml:1: tenant.jwt.claim: this is missing: name the claim whose text is the tenant, such as sub",
	"!tenant: {jwt: {claim: a, jwks: \"http://id/x\"}}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]":           "p.yaml:1: tenant.jwt.jwks: without TLS, the keys could be replaced on the way: write an https URL",
	"!tenant: {jwt: {claim: a, jwks: \"https://u:secret@id/x\"}}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]": "p.yaml:1: tenant.jwt.jwks: this is not a URL of a document: write one such as https://id.example.com/jwks.json",
	"!tenant: {jwt: {claim: a, jwks: \"keys.json\", ca: x}}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]":      "p.yaml:1: tenant.jwt.ca: it is only for keys from an https URL: leave it out",

	"!tenant: {header: X_Tenant}\nstore: {url: x}\nupstreams: [{url: \"http://a\"}]": "p.yaml:1: tenant.header: \"X_Tenant\" is one of several spellings that some servers take for the same header, of which the proxy would read this one: write letters, digits and - only",

	// Upstreams.
	"!upstreams:\n  - name: a\nstore: {url: x}\ntenant: {single: true}":                                     "p.yaml:2: upstreams[0].url: this is missing: write the URL of the server, such as http://127.0.0.1:3000",
	"!upstreams:\n  - url: 127.0.0.1:3000\nstore: {url: x}\ntenant: {single: true}":                         "p.yaml:2: upstreams[0].url: this is not the URL of a server: write http://HOST:PORT or https://HOST",
	"!upstreams:\n  - url: http://u:secret@a\nstore: {url: x}\ntenant: {single: true}":                      "p.yaml:2: upstreams[0].url: the URL of a server has no user, no query and no fragment: leave them out",
	"!upstreams:\n  - url: http://a\n    tls: {ca: a}\nstore: {url: x}\ntenant: {single: true}":             "p.yaml:3: upstreams[0].tls: it is only for an https URL: leave it out, or write https",
	"!upstreams:\n  - url: https://a\n    tls:\n      cert: a\nstore: {url: x}\ntenant: {single: true}":     "p.yaml:4: upstreams[0].tls: cert and key go together: name both files, or neither",
	"!upstreams:\n  - url: http://a\n  - url: http://b\nstore: {url: x}\ntenant: {single: true}":            "p.yaml:3: upstreams[1].name: upstreams[0] is also called \"main\": give each a name of its own",
	"!upstreams:\n  - url: http://a\n    name: a b\nstore: {url: x}\ntenant: {single: true}":                "p.yaml:3: upstreams[0].name: \"a b\" is not a valid name: write 1 to 64 characters from a-z A-Z 0-9 _ -",
	"!upstreams:\n  - url: http://a\n    timeouts: {response: 0s}\nstore: {url: x}\ntenant: {single: true}": "p.yaml:3: upstreams[0].timeouts.response: 0s is out of bounds: write 10ms to 10000h0m0s",

	// Settings.
	"defaults: {methods: []}":                                                   "p.yaml:4: defaults.methods: the list is empty, so no request would be protected: write [POST, PATCH]",
	"defaults: {methods: [GET, post]}":                                          "p.yaml:4: defaults.methods: GET is safe to repeat by itself: leave it out\np.yaml:4: defaults.methods: \"post\" is not a method: write it in capitals, such as POST",
	"defaults: {key: {header: Cookie Jar}}":                                     "p.yaml:4: defaults.key.header: \"Cookie Jar\" can't be the header of a key: write one such as Idempotency-Key",
	"defaults: {key: {header: X.Key}}":                                          "p.yaml:4: defaults.key.header: \"X.Key\" is one of several spellings that some servers take for the same header, of which the proxy would read this one: write letters, digits and - only",
	"defaults: {fingerprint: {headers: [X-A, X_B]}}":                            "p.yaml:4: defaults.fingerprint.headers[1]: \"X_B\" is one of several spellings that some servers take for the same header, of which the proxy would read this one: write letters, digits and - only",
	"defaults: {key: {max_length: 2000}}":                                       "p.yaml:4: defaults.key.max_length: 2000 is out of bounds: write 1 to 1024",
	"defaults: {key: {chars: \"a b\"}}":                                         "p.yaml:4: defaults.key.chars: a key can have printable ASCII characters except space, quote and backslash: leave out all others",
	"defaults: {key: {pointer: id}}":                                            "p.yaml:4: defaults.key.pointer: \"id\" is not a JSON Pointer: write one such as /request_id",
	"defaults: {summary: [/a~2]}":                                               "p.yaml:4: defaults.summary[0]: \"/a~2\" is not a JSON Pointer: write one such as /amount",
	"defaults: {summary: [path, a b]}":                                          "p.yaml:4: defaults.summary[1]: \"a b\" is neither a JSON Pointer nor a header name: write path, /amount or X-Order-ID, for example",
	"defaults: {fingerprint: {mode: xml}}":                                      "p.yaml:4: defaults.fingerprint.mode: \"xml\" is not known: write raw, json or none",
	"defaults: {fingerprint: {fields: [/a]}}":                                   "p.yaml:4: defaults.fingerprint.fields: fields are compared only with mode: json: set that, or leave fields out",
	"defaults: {fingerprint: {mode: json, fields: [a]}}":                        "p.yaml:4: defaults.fingerprint.fields[0]: \"a\" is not a JSON Pointer: write one such as /amount",
	"defaults: {keep: 1ms}":                                                     "p.yaml:4: defaults.keep: 1ms is out of bounds: write 10ms to 10000h0m0s",
	"defaults: {wait: -1s}":                                                     "p.yaml:4: defaults.wait: -1s is out of bounds: write 10ms to 10000h0m0s, or 0s for not at all",
	"defaults: {unknown: maybe}":                                                "p.yaml:4: defaults.unknown: \"maybe\" is not known: write rerun or hold",
	"defaults: {responses: {statuses: [2xx, 600]}}":                             "p.yaml:4: defaults.responses.statuses[1]: \"600\" is not a status: write one such as 502, a class such as 5xx, or a range such as 520-529",
	"defaults: {responses: {statuses: [2xx, 400-599]}}":                         "p.yaml:4: defaults.responses.statuses[1]: responses of 500 or more are stored with keep_errors: true: leave them out here",
	"defaults: {responses: {statuses: [5xx]}}":                                  "p.yaml:4: defaults.responses.statuses[0]: responses of 500 or more are stored with keep_errors: true: leave them out here",
	"defaults: {responses: {keep_headers: [a], allow_headers: [b]}}":            "p.yaml:4: defaults.responses.allow_headers: keep_headers lists the only headers that are stored: leave out one of the two",
	"defaults: {responses: {allow_headers: [\"a b\"]}}":                         "p.yaml:4: defaults.responses.allow_headers: \"a b\" is not a header name: write one such as ETag",
	"defaults: {responses: {unknown_statuses: [502, 404]}}":                     "p.yaml:4: defaults.responses.unknown_statuses[1]: a server responds with a status below 500 itself, so the outcome is known: write statuses such as 502, or 5xx",
	"defaults: {responses: {keep_headers: [a], drop_headers: [b]}}":             "p.yaml:4: defaults.responses.drop_headers: keep_headers lists the only headers that are stored: leave out one of the two",
	"defaults: {responses: {drop_headers: [a b]}}":                              "p.yaml:4: defaults.responses.drop_headers: \"a b\" is not a header name: write one such as ETag",
	"defaults: {errors: {format: xml}}":                                         "p.yaml:4: defaults.errors.format: \"xml\" is not known: write problem, stripe or template",
	"defaults: {errors: {format: template}}":                                    "p.yaml:4: defaults.errors.template: the template is missing: write one such as '{\"code\":{{.Code}},\"message\":{{.Detail}}}'",
	"defaults: {errors: {template: x}}":                                         "p.yaml:4: defaults.errors.template: a template has an effect only with format: template: set that, or leave the template out",
	"defaults: {errors: {format: template, template: '{\"a\":\"{{.Code}}\"}'}}": "p.yaml:4: defaults.errors.template: the output is not JSON: leave out the quotes around {{…}}, which prints them itself; the output is \"{\\\"a\\\":\\\"\\\"a\\\\\\\"b\\\"\\\"}\"",
	"defaults: {errors: {content_type: json}}":                                  "p.yaml:4: defaults.errors.content_type: \"json\" is not a media type: write one such as application/json",
	"defaults: {errors: {docs_url: here}}":                                      "p.yaml:4: defaults.errors.docs_url: \"here\" is not a URL: write one such as https://api.example.com/docs/idempotency",
	"defaults: {limits: {body: 0}}":                                             "p.yaml:4: defaults.limits.body: write at least 1 byte, such as 1MiB",
	"defaults: {limits: {response: 2GiB}}":                                      "p.yaml:4: defaults.limits.response: 2GiB is out of bounds: write 1 to 1GiB; responses.no_body stores none",
	"defaults: {limits: {body: 25MiB}}":                                         "p.yaml:4: defaults.limits.tenant_memory: a body of limits.body (25MiB) does not fit: a long body may use three quarters of this and of server.memory, which is 18MiB; raise these, or lower limits.body",
	"defaults: {limits: {tenant_stored: 0}}":                                    "p.yaml:4: defaults.limits.tenant_stored: write at least 1 byte, such as 16GiB",
	"server: {memory: 1KiB}":                                                    "p.yaml: defaults.limits.tenant_memory: a body of limits.body (1MiB) does not fit: a long body may use three quarters of this and of server.memory, which is 768; raise these, or lower limits.body\np.yaml:4: server.memory: write at least 1MiB",
	"defaults: {limits: {new_keys: -1}}":                                        "p.yaml:4: defaults.limits.new_keys: write at least 1",
	"defaults: {limits: {in_flight: -1}}":                                       "p.yaml:4: defaults.limits.in_flight: write at least 1",
	"defaults: {headers: {request: {drop: [Connection]}}}":                      "p.yaml:4: defaults.headers.request.drop[0]: Connection is the proxy's own, or of one connection only: name another header",
	"defaults: {headers: {request: {drop: [idempotency-key]}}}":                 "p.yaml:4: defaults.headers.request.drop: Idempotency-Key is the header of the key, which the upstream gets: leave it out",
	"defaults: {headers: {response: {add: {X: a}, drop: [x]}}}":                 "p.yaml:4: defaults.headers.response.drop: X is also in add, which replaces it: leave it out here",
	"defaults: {headers: {response: {add: {X: \"a\\r\"}}}}":                     "p.yaml:4: defaults.headers.response.add: the value of \"X\" contains a control character: leave it out",

	// Routes.
	"routes:\n  - upstream: main":                                                                               "p.yaml:5: routes[0].match: this is missing: write a method and a path, such as POST /orders/{id}",
	"routes:\n  - match: POST":                                                                                  "p.yaml:5: routes[0].match: \"POST\" is not a pattern: write a method in capitals, one blank and a path, such as POST /orders/{id}",
	"routes:\n  - match: /{a}x":                                                                                 "p.yaml:5: routes[0].match: \"/{a}x\" is not a pattern: write one such as POST /orders/{id}",
	"routes:\n  - match: /{a}\n  - match: /{b}":                                                                 "p.yaml:6: routes[1].match: \"/{b}\" and \"/{a}\" match some of the same requests, and neither is more specific: leave one out, or narrow one",
	"routes:\n  - match: /a\n    upstream: other":                                                               "p.yaml:6: routes[0].upstream: there is no upstream \"other\": write the name of one, or add it to upstreams",
	"routes:\n  - match: /a\n    remember: 1h":                                                                  "p.yaml:6: routes[0].remember: 1h0m0s is shorter than keep, which is 24h0m0s: raise it, or write 0s for as long as keep",
	"routes:\n  - match: /a\n    limits:\n      body: 0":                                                        "p.yaml:7: routes[0].limits.body: write at least 1 byte, such as 1MiB",
	"routes:\n  - match: GET /a\n    key: {required: true}":                                                     "p.yaml:6: routes[0].key.required: a GET of this route is not protected, and passes without a key: match a method that changes something, such as POST, or leave this out",
	"routes:\n  - match: HEAD /a\n    key:\n      pointer: /id":                                                 "p.yaml:7: routes[0].key.pointer: a HEAD of this route is not protected, and passes without a key: match a method that changes something, such as POST, or leave this out",
	"routes:\n  - match: PUT /a\n    methods: [POST]\n    key: {required: true}":                                "p.yaml:7: routes[0].key.required: a PUT of this route is not protected, and passes without a key: add PUT to methods, or leave this out",
	"defaults: {remember: 48h}\nroutes:\n  - match: /a\n    keep: 72h":                                          "p.yaml:4: defaults.remember: 48h0m0s is shorter than routes[0].keep, which is 72h0m0s: raise it, or write remember: 0s into that route for as long as its keep",
	"defaults: {fingerprint: {mode: json, fields: [/a]}}\nroutes:\n  - match: /a\n    fingerprint: {mode: raw}": "p.yaml:7: routes[0].fingerprint.fields: fields are compared only with mode: json: set that, or leave fields out",
}
