// Package mcponce makes the tools of servers of the Model Context Protocol idempotent, with the
// official Go SDK. A repeat of a call gets the first result, and its tool does not run again.
//
//	server.AddReceivingMiddleware(mcponce.Middleware(guard, mcponce.Config{
//		Tenant: mcponce.TokenUser, // or SingleTenant
//	}))
//	client.AddSendingMiddleware(mcponce.ClientMiddleware(mcponce.ClientConfig{}))
//
// The key is in the call's _meta, under MetaKey:
//
//	"params": {
//		"name": "charge", "arguments": {"amount": 5},
//		"_meta": {"io.github.onlyonce-go/idempotency-key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
//	}
//
// The operation is "tools/call" with the tool's name, such as "tools/call charge". The arguments
// are compared by their meaning as JSON. A replay is marked with MetaReplayed in its _meta, and
// sends no progress notifications. It has the content, the structured content and isError of the
// first result.
//
// Calls of tools with readOnlyHint pass through unprotected: see Config.Protects. Of the other
// tools, tools/list shows those whose calls must have a key (see Config.Required) with
// idempotentHint. A tool that accepts calls without a key does not get the hint, because such a
// call runs each time.
//
// How a call ends decides about its repeats:
//
//	a result                                       completed: a repeat gets the same
//	a result with isError, an error of JSON-RPC    failed: a repeat runs again
//	a result that asks the client for input        released: the next round runs, with the same key
//	a panic, an onlyonce.Unknown error, an error   unknown: see onlyonce.Config.HoldUnknown
//	after the lease was lost
//
// With onlyonce.Config.KeepFailures, and after an onlyonce.Final error, a repeat of a failed call
// gets the same result or error. The SDK turns an error of a tool into a result with isError, and
// keeps the error, so that its mark counts (see mcp.CallToolResult.SetError).
//
// The body of a record is the result as JSON. A person or onlyonce.Config.Reconcile may write one.
//
// A call with a key is finished even if its client cancels it or disconnects. A tool that can stop
// safely watches ClientContext. Give requests to the client, such as Elicit, a deadline: the
// context of a tool does not end with the client.
//
// A middleware that recovers from panics belongs before this one: after it, a panic would be an
// ordinary error.
//
// A rejection is an error of JSON-RPC, whose data has the code of the corresponding problem of
// httponce, and the seconds after which a retry with the same key can help:
//
//	{"code": "request_in_progress", "retryable": true, "retryAfter": 5}
//
//	idempotency_key_missing, idempotency_key_invalid,   -32602
//	idempotency_key_reused
//	command_failed: a failure that is kept              -32603
//	tenant_missing                                      401
//	request_in_progress, outcome_unknown                409
//	idempotency_key_expired                             410
//	too_many_requests                                   429
//	store_unavailable, overloaded, and outcome_unknown  503
//	after a commit that got no response
package mcponce
