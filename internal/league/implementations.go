package main

// A language is what a server is written in.
type language string

const (
	golang language = "Go"
	node   language = "Node"
)

// An implementation is an implementation of the Idempotency-Key header, with the server in which it
// is checked: the folder servers/ID for Go, and the file node/ID.mjs for Node.
type implementation struct {
	id       string
	language language
	name     string // as a link
	pkg      string // the Go module or the npm package; empty: it is part of this repository
	license  string
	records  string // where it keeps its records
	proxy    bool   // onlyonce proxy, in front of a server that knows nothing of idempotency
	header   string // the header of the key, if it is not Idempotency-Key
	config   string // what is configured, with a link to the documentation that recommends it

	// The rules that its documentation promises, with a link to the place. A rule that the draft
	// calls for (MUST, SHOULD) is also promised by documentation that says that it follows the
	// draft.
	promises     map[string]string
	followsDraft string

	notes map[string]string // by rule: what a reader of a failure should know
}

// core are the rules that the header is for. They count as promised by every implementation.
var core = map[string]bool{"replay": true, "burst": true, "in-flight": true, "disconnect": true, "cut-off": true}

// promised returns where a rule is promised. ok is false if it is promised nowhere.
func (i implementation) promised(rule string) (where string, ok bool) {
	switch {
	case i.pkg == "": // Onlyonce promises all of them
		return "", true
	case i.promises[rule] != "":
		return i.promises[rule], true
	case core[rule]:
		return "", true
	case i.followsDraft != "" && (drafted[rule] == "MUST" || drafted[rule] == "SHOULD"):
		return i.followsDraft, true
	}
	return "", false
}

// drafted is the word of the draft for each rule. It is "advice" if only its security
// considerations recommend the rule, and "–" if it says nothing about the rule.
var drafted = map[string]string{
	"replay": "SHOULD", "mismatch": "SHOULD", "burst": "SHOULD", "in-flight": "SHOULD", "disconnect": "SHOULD",
	"cut-off": "–", "error": "SHOULD", "missing": "SHOULD", "empty": "advice", "malformed": "MUST",
	"repeated": "MUST", "over-long": "advice", "forms": "–", "case": "–", "problem": "SHOULD", "link": "SHOULD",
	"marker": "–", "cookie": "–", "tenants": "advice", "operation": "–", "safe-method": "–",
}

// The places in the documentation that implementations are configured by.
const (
	fiber2Docs  = "https://github.com/gofiber/fiber/blob/05f9936fec7415c32f42b5b8296fad28c85bcc4f/docs/api/middleware/idempotency.md"
	fiberDocs   = "https://github.com/gofiber/fiber/blob/2740b7ba7debb07e2adbcf02ae2a6f1aeca37c44/docs/middleware/idempotency.md"
	expressDocs = "https://github.com/VilledeMontreal/express-idempotency/blob/6b054b1159229995800be318489ebcdb26cc50e8/README.md"
	nodeRepo    = "https://github.com/mahendraHegde/node-idempotency/blob/622b33f3edb63ee2e864187bf564539c8dedea9d/packages/"
)

// fiberNotes are about both versions of fiber.
var fiberNotes = map[string]string{
	"empty":     keyError,
	"malformed": keyError,
	"over-long": keyError,
	"forms":     keyError,
	"cookie":    "With `KeepResponseHeaders`, this rule passes.",
}

const (
	keyError    = "Nothing ran: the key was rejected by `KeyHeaderValidate`, whose error fiber's default error handler turns into a 500. With an `ErrorHandler` that responds with 400 to `idempotency.ErrInvalidIdempotencyKey`, this rule does not fail."
	contentType = "The status and the body are those of the first response. Of its headers, only `Content-Type` is stored."
)

// implementations are those that are checked, in the order of the page.
var implementations = []implementation{
	{
		id: "fiber2", language: golang, name: "[fiber v2's middleware](https://docs.gofiber.io/api/middleware/idempotency/)", pkg: "github.com/gofiber/fiber/v2", license: "MIT",
		records: "memory", header: "X-Idempotency-Key",
		config:   "[the default configuration](" + fiber2Docs + "#default-config)",
		promises: map[string]string{"safe-method": "[`Next`](" + fiber2Docs + "#config)"},
		notes:    fiberNotes,
	},
	{
		id: "fiber", language: golang, name: "[fiber v3's middleware](https://docs.gofiber.io/middleware/idempotency)", pkg: "github.com/gofiber/fiber/v3", license: "MIT",
		records: "memory", header: "X-Idempotency-Key",
		config:   "[the default configuration](" + fiberDocs + "#default-config-skip-safe-methods)",
		promises: map[string]string{"safe-method": "[`Next`](" + fiberDocs + "#config)"},
		notes:    fiberNotes,
	},
	{
		id: "express-idempotency", language: node, name: "[express-idempotency](https://github.com/VilledeMontreal/express-idempotency)", pkg: "express-idempotency", license: "MIT",
		records: "memory",
		config:  "[the README](" + expressDocs + "#getting-started), with the default store, which it does not recommend for production",
		promises: map[string]string{
			"mismatch": "[README](" + expressDocs + "#options), the validator of the intent",
		},
		notes: map[string]string{"replay": contentType},
	},
	{
		id: "node-idempotency-nestjs", language: node, name: "[node-idempotency for NestJS](https://github.com/mahendraHegde/node-idempotency)", pkg: "@node-idempotency/nestjs", license: "MIT",
		records: "memory",
		config:  "[the README](" + nodeRepo + "plugin-nestjs/Readme.md), with the first store that it names",
		promises: map[string]string{
			"mismatch":  "[README of its core](" + nodeRepo + "core/Readme.md#usage)",
			"over-long": "[options of its core](" + nodeRepo + "core/docs/interfaces/IdempotencyOptions.md#keymaxlength)",
		},
		followsDraft: "[README](" + nodeRepo + "plugin-nestjs/Readme.md#why), which says that it follows the draft",
		notes:        map[string]string{"replay": contentType},
	},
	{
		id: "onlyonce", language: golang, name: "[Onlyonce: `httponce`](../httponce)", license: "Apache-2.0",
		records: "SQLite",
		config:  "[a handler that calls other services](first-service.md#when-a-handler-calls-other-services)",
	},
	{
		id: "proxy", language: node, proxy: true, name: "[Onlyonce: `onlyonce proxy`](proxy.md)", license: "Apache-2.0",
		records: "SQLite",
		config:  "[`--tenant-header`](proxy.md#identifying-the-tenant) and `--unknown hold`, in front of a server that knows nothing of idempotency",
	},
}
