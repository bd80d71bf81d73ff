package conform

// checks has one check per row, in the order of the report. The IDs are stable.
var checks = []check{
	{
		id: "replay", section: "2.6", maxRequests: 0, run: checkReplay,
		title:  "The same key and body get the first response again, byte for byte",
		advice: "Store the status, the body and headers such as Location and Content-Type with the key, in the same commit as the command's effect, and send exactly that to a repeat.",
	},
	{
		id: "mismatch", section: "2.2, 2.7", precondition: needsVaryingBody, maxRequests: 3 + 4, run: checkMismatch,
		title:  "A different body under a used key is rejected, and changes nothing",
		advice: "Store a hash of the request with its key, compare it before anything else, reject a different request with 422, and leave the record as it is.",
	},
	{
		id: "burst", section: "2.6", precondition: needsRunDetection, maxRequests: burstRounds * (10 + 2), run: checkBurst,
		title:  "Of many identical concurrent requests, one runs",
		advice: "Claim the key in one atomic step, such as an insert under a unique constraint, before the command runs; looking up the key first and writing it later is a race.",
	},
	{
		id: "in-flight", section: "2.6, 2.7", precondition: needsRunDetection, maxRequests: 3 * (2 + 10 + 2), run: checkInFlight,
		title:  "The repeat of a running request waits, or is rejected with 409",
		advice: "Record that a command is running before it starts; let a repeat wait for the response, or reject it with 409 and a Retry-After.",
	},
	{
		id: "disconnect", section: "2.6", precondition: needsRunDetection, maxRequests: 3 * (1 + 10 + 1 + 2), run: checkDisconnect,
		title:  "A client that disconnects and retries gets one run's response",
		advice: "Let a command with a key finish even if its client has disconnected, and store its response; do not release the key when the connection ends.",
	},
	{
		id: "cut-off", section: "2.6", precondition: needsReplays, maxRequests: 1 + 10 + 1 + 2, run: checkCutOff,
		title:  "A truncated request does not use up its key",
		advice: "Read the whole body before the key is claimed.",
	},
	{
		id: "error", advisory: true, section: "2.6, 2.7", precondition: needsReplays, maxRequests: 4, run: checkError,
		title:  "A request that got an error response gets it again",
		advice: "Settle or release the key on every path out of the handler, including errors and panics.",
	},
	{
		id: "missing", section: "2.7", maxRequests: 4, run: checkMissing,
		title:  "A missing key is rejected where one is required, and never shared",
		advice: "Reject a request without a key with 400 where one is required; elsewhere, run it and store nothing.",
	},
	{
		id: "empty", section: "2.1, 5", precondition: needsReplays, maxRequests: 2*4 + 1, run: checkEmpty,
		title:  "An empty key is rejected",
		advice: "Reject an empty key with 400. If it were accepted, all callers would share it; if it were ignored, its client would believe that it is protected.",
	},
	{
		id: "malformed", section: "2.1, 5", precondition: needsReplays, maxRequests: 4*(4+3) + 3, run: checkMalformed,
		title:  "A malformed key is rejected, never ignored or truncated",
		advice: "Publish which characters a key may have, and reject others with 400 before anything runs; compare keys in full.",
	},
	{
		id: "repeated", section: "2.1", precondition: needsReplays, maxRequests: 4 + 2*3 + 3, run: checkRepeated,
		title:  "Two keys in one request are rejected",
		advice: "Reject a request that has the header more than once with 400.",
	},
	{
		id: "over-long", section: "5", precondition: needsReplays, maxRequests: 3*4 + 3 + 3, run: checkOverLong,
		title:  "An over-long key is rejected or used in full, never truncated",
		advice: "Publish how long a key may be, and reject a longer one with 400; a column that truncates keys can turn two keys into one.",
	},
	{
		id: "forms", advisory: true, section: "2.1", precondition: needsReplays, maxRequests: 3 + 2, run: checkForms,
		title:  "A key is the same with and without quotes",
		advice: "Read the header as an RFC 9651 string; if bare keys are accepted too, remove the quotes before comparing keys.",
	},
	{
		id: "case", section: "2.2", precondition: needsReplays, maxRequests: 4 + 4 + 3 + 3, run: checkCase,
		title:  "Keys that differ only in case are different keys",
		advice: "Compare keys byte for byte: store them in a binary collation, or as a hash.",
	},
	{
		id: "problem", advisory: true, section: "2.7", maxRequests: 3, run: checkProblem,
		title:  "A rejection is a problem document (RFC 9457)",
		advice: "Send application/problem+json with a type, a title and the status of the response.",
	},
	{
		id: "link", advisory: true, section: "2.7", maxRequests: 3 + 1, run: checkLink,
		title:  "A rejection links to documentation",
		advice: "Set the problem's type, or a Link with the relation describedby, to a page that exists.",
	},
	{
		id: "marker", advisory: true, section: "", precondition: needsReplays, maxRequests: 0, run: checkMarker,
		title:  "A header says which response is a replay",
		advice: "Set a header such as Idempotency-Replayed: true on replays, and only there.",
	},
	{
		id: "cookie", section: "5", precondition: needsReplays, maxRequests: 0, run: checkCookie,
		title:  "A replay does not set the first response's cookies",
		advice: "Do not store Set-Cookie, or any other header with credentials, with the response.",
	},
	{
		id: "tenants", section: "5", precondition: needsReplayDetection, maxRequests: 4, run: checkTenants,
		title:  "The same key of two tenants identifies two commands",
		advice: "Look up a record by the verified identity of the caller as well as by the key.",
	},
	{
		id: "operation", section: "2.2, 2.7", precondition: needsReplayDetection, maxRequests: 3, run: checkOperation,
		title:  "One operation never gets another's response",
		advice: "Look up a record by the operation as well as by the key, or include the path in the hash that is compared.",
	},
	{
		id: "safe-method", advisory: true, section: "2", precondition: needsReplays, maxRequests: 3, run: checkSafe,
		title:  "A key on a GET is ignored",
		advice: "Use the key of POST and PATCH only: GET is idempotent by itself.",
	},
}
