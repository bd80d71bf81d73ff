// Package lambdaonce makes AWS Lambda functions idempotent: APIs behind API Gateway or a function
// URL, functions that are invoked directly, and consumers of SQS queues.
//
// # APIs
//
// Any http.Handler can serve the events of an API. The key is in the header Idempotency-Key, and
// a repeat gets the first response:
//
//	mux := http.NewServeMux()
//	mux.Handle("POST /charges", httponce.Wrap(guard, charge, httponce.Config{Tenant: lambdaonce.Principal, Required: true}))
//	lambda.Start(lambdaonce.HTTPHandler(mux))
//
// If there is no router, the operation is the route of the API.
//
// # Direct invocations
//
// A function that Step Functions, EventBridge or another function invokes runs once for each key,
// which is a part of the event:
//
//	lambda.Start(lambdaonce.Handler(guard, charge, lambdaonce.Config[Order]{
//		Operation: "charge",
//		KeyFields: []string{"/order/id"},
//	}))
//
// These are the errors that are not the function's own, by their errorType. A retry of the same
// event can help after those marked with *:
//
//	ErrInFlight*     another invocation is working on it
//	ErrUnavailable*  the store could not be reached, and nothing ran
//	ErrLost*         the function ran, but another invocation has taken over
//	ErrInDoubt*      the commit of HandlerTx got no response: a repeat finds out what happened
//	ErrMismatch      the key was used for a different event
//	ErrKeyExpired    an earlier invocation ended, and its result is no longer kept
//	ErrUnknown       a person has to find out whether an earlier invocation took effect
//	ErrFailed        an earlier invocation failed for good
//	ErrCorrupt       the stored result can't be read
//
// A transaction of HandlerTx that the database rejects, such as one that breaks a deferred
// constraint, has failed like the function, and its errorType is none of these.
//
// # Queues
//
// A message of an SQS queue takes effect once, however often it is delivered:
//
//	in := inbox.New(store, inbox.Config{Consumer: "shipping", Redelivery: 3 * time.Minute}) // the visibility timeout
//	lambda.Start(lambdaonce.SQSHandler(in, ship, lambdaonce.SQSConfig{ReportBatchItemFailures: true}))
//
// # The end of an invocation
//
// AWS kills an invocation that takes longer than the function's timeout. Contexts therefore end a
// second before that or, if fewer than four seconds are left, when a quarter of that time remains. A
// function that respects its context returns in time, and its outcome is recorded. If an invocation
// is killed nevertheless, its outcome is unknown, and a repeat is rejected until the lease has
// ended. Set the Lease of the Guard's or the inbox's Config to no more than the timeout.
//
// Whoever may invoke the function may send any event to it, with any principal in it. Only the
// API should have the permission lambda:InvokeFunction for a function with an HTTPHandler.
package lambdaonce
