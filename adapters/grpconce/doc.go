// Package grpconce makes the unary methods of grpc-go servers idempotent. A repeat of a call gets
// the first response or error, and its handler does not run again.
//
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(recoverPanics, authenticate, grpconce.UnaryServerInterceptor(guard, grpconce.Config{
//			Tenant: accountOf, // returns the authenticated caller
//		})),
//		grpc.StreamInterceptor(grpconce.StreamServerInterceptor()),
//	)
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(grpconce.UnaryClientInterceptor(grpconce.ClientConfig{})))
//
// The key is in the call's metadata, under "idempotency-key". A replay has
// "idempotency-replayed: true" in its header. The response is replayed, or the error with its
// details, and so are the header and the trailer that the handler sets, except what looks like a
// credential by its name: see Config.ReplayMetadata. They are sent when the outcome has been
// recorded, also after grpc.SendHeader. grpc.SetSendCompressor fails in a handler; call it in an
// interceptor before this one.
//
// The code of the error that a handler returns decides the outcome:
//
//	OK, InvalidArgument, NotFound, AlreadyExists,     completed: a repeat gets the same
//	FailedPrecondition, Aborted, OutOfRange
//
//	Internal, Unknown, DataLoss, Unavailable,         failed: a repeat runs again
//	DeadlineExceeded, Unimplemented, Canceled,
//	Unauthenticated, PermissionDenied,
//	ResourceExhausted, and every error with a
//	google.rpc.RetryInfo
//
// A RetryInfo says that the call is to be sent again, for example because a server that the handler
// has called is still running it. An error marked with onlyonce.Unknown leaves the outcome unknown, and so
// do OUTCOME_UNKNOWN, with Domain and no RetryInfo, which says that such a server holds it for a person's
// decision, and a panic. With onlyonce.Config.KeepFailures, a failure is kept, whatever it asks for. An
// interceptor that recovers from panics belongs before this one: after it, a panic would be an
// error like others.
//
// WrapTx runs a method in a transaction instead. There, every error rolls back, and a repeat runs
// again.
//
// A rejection has one of these codes. Its details are a google.rpc.ErrorInfo, whose reason is
// that of httponce in upper case and whose domain is Domain, and a google.rpc.RetryInfo if a
// retry with the same key can help.
//
//	IDEMPOTENCY_KEY_MISSING, IDEMPOTENCY_KEY_INVALID  InvalidArgument
//	TENANT_MISSING                                    Unauthenticated
//	IDEMPOTENCY_KEY_REUSED, IDEMPOTENCY_KEY_EXPIRED,  FailedPrecondition
//	OUTCOME_UNKNOWN
//	REQUEST_IN_PROGRESS                               Aborted
//	TOO_MANY_REQUESTS                                 ResourceExhausted
//	STORE_UNAVAILABLE, OVERLOADED                     Unavailable
//	COMMAND_FAILED                                    Internal: a failure that is kept
package grpconce
