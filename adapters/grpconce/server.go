package grpconce

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// These are the names of the metadata.
const (
	MetadataKey      = "idempotency-key"
	MetadataReplayed = "idempotency-replayed"
)

// Domain is the domain of the google.rpc.ErrorInfo of a rejection.
const Domain = "onlyonce"

// A Config controls which calls are protected, and how. Only Tenant is required.
type Config struct {
	// Tenant returns the tenant of a call. It must use only data that the server has verified.
	// A call for which it returns "" is rejected.
	Tenant func(ctx context.Context) string
	// Operation returns the name of the operation. Default: the full method, such as
	// "/shop.v1.Shop/Charge". WrapTx needs it where the full method is unknown ("").
	Operation func(ctx context.Context, fullMethod string) string
	// Protects says which methods UnaryServerInterceptor protects. Default: all. Leave out those
	// that WrapTx protects. Calls of the others pass through, with and without a key.
	Protects func(fullMethod string) bool
	// Required says that a method rejects calls without a key. Default: they pass through.
	Required func(fullMethod string) bool
	// ReplayMetadata reports whether metadata that the handler sets in the header or the trailer
	// is stored and replayed. byDefault is the default decision: all is stored except what
	// looks like a credential by its name, and what tells the time or the trace of one call.
	ReplayMetadata func(name string, byDefault bool) bool
	// Limits has the limits of calls: see httponce.NewLimiter for the fields that count.
	Limits httponce.Config
}

// UnaryServerInterceptor returns an interceptor that runs a handler once for each idempotency
// key. It panics on a nil Guard and on a Config without a Tenant. A handler's context carries
// the attempt (see onlyonce.Current). It ends when the lease is lost, but neither with the
// client nor at the deadline of the call.
func UnaryServerInterceptor(g *onlyonce.Guard, cfg Config) grpc.UnaryServerInterceptor {
	s := newServer("UnaryServerInterceptor", g, cfg)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		keys, protected := s.keysOf(ctx, info.FullMethod)
		if !protected || cfg.Protects != nil && !cfg.Protects(info.FullMethod) {
			return handler(ctx, req)
		}
		c := &call{server: s, method: info.FullMethod, completes: s.completes}
		return c.serve(ctx, keys, req, func(ctx context.Context) (onlyonce.Answer[response], error) {
			return onlyonce.Do(ctx, s.guard, c.command, func(ctx context.Context) (response, error) {
				return c.run(ctx, func(ctx context.Context) (any, error) { return handler(ctx, req) })
			})
		})
	}
}

// WrapTx returns a method that runs h once for each idempotency key, in a transaction that
// commits the rows of h and its response together. If h returns an error, whatever its code,
// its rows are rolled back, and a repeat runs again. h may run more than once if the database
// requires a retry. Without a key, h also runs in a transaction, and nothing is recorded. WrapTx
// panics like UnaryServerInterceptor.
//
// A call that does not come from a gRPC server, such as one that grpc-gateway makes in its own
// process, has no full method. With a key, it is rejected unless Config.Operation returns a name.
// Config.Required gets "" for it.
//
// Call the method that it returns in that of the service. If UnaryServerInterceptor protects the
// method, too, each call with a key is rejected: leave it out with Config.Protects.
//
//	charge := grpconce.WrapTx(guard, func(ctx context.Context, req *shopv1.ChargeRequest, tx *sql.Tx) (*shopv1.Charge, error) {…}, cfg)
func WrapTx[TX any, Req, Resp proto.Message](g *onlyonce.TxGuard[TX], h func(context.Context, Req, TX) (Resp, error), cfg Config) func(context.Context, Req) (Resp, error) {
	if g == nil || h == nil {
		panic("grpconce: WrapTx: the TxGuard or the handler is nil")
	}
	s := newServer("WrapTx", g.Guard, cfg)
	return func(ctx context.Context, req Req) (made Resp, err error) {
		method, _ := grpc.Method(ctx)
		keys, protected := s.keysOf(ctx, method)
		if !protected {
			return transact(ctx, g, func(ctx context.Context, tx TX) (Resp, error) { return h(ctx, req, tx) })
		}
		c := &call{server: s, method: method}
		answer, err := c.serve(ctx, keys, req, func(ctx context.Context) (onlyonce.Answer[response], error) {
			if a := onlyonce.Current(ctx); a != nil && a.Record().ID == c.command.ID {
				return onlyonce.Answer[response]{}, status.Error(codes.Internal, "grpconce: UnaryServerInterceptor protects the method of WrapTx, too: leave it out with Config.Protects")
			}
			return onlyonce.DoTx(ctx, g, c.command, func(ctx context.Context, tx TX) (response, error) {
				return c.run(ctx, func(ctx context.Context) (any, error) { return h(ctx, req, tx) })
			})
		})
		if err != nil {
			return made, err
		}
		made, ok := answer.(Resp)
		if !ok {
			return made, rejection(onlyonce.ErrCorrupt)
		}
		return made, nil
	}
}

// transact runs a call without a key.
func transact[TX, Resp any](ctx context.Context, g *onlyonce.TxGuard[TX], h func(context.Context, TX) (Resp, error)) (Resp, error) {
	var made, none Resp
	var failed error
	r := new(recorder)
	err := g.Transact(ctx, func(ctx context.Context, tx TX) error {
		r = new(recorder)
		made, failed = h(r.in(ctx), tx)
		return failed
	})
	switch {
	case failed != nil:
		err = failed
	case err != nil:
		return none, rejection(err)
	}
	send(ctx, r)
	return made, err
}

// StreamServerInterceptor returns an interceptor that rejects streams with a key, because
// nothing protects them. Other streams pass through.
func StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if len(metadata.ValueFromIncomingContext(stream.Context(), MetadataKey)) > 0 {
			return status.Errorf(codes.InvalidArgument, "%s is a stream, which %s cannot protect: leave the key out, or call a unary method", info.FullMethod, MetadataKey)
		}
		return handler(srv, stream)
	}
}

// A server protects calls.
type server struct {
	guard   *onlyonce.Guard
	cfg     Config
	limiter *httponce.Limiter
}

func newServer(caller string, g *onlyonce.Guard, cfg Config) *server {
	if cfg.Tenant == nil {
		panic("grpconce: " + caller + ": Config.Tenant is nil: set a function that returns the tenant of a call")
	}
	return &server{guard: g, cfg: cfg, limiter: httponce.NewLimiter(g, cfg.Limits)}
}

// keysOf returns the keys of a call, and whether it is protected: it has one, or needs one.
func (s *server) keysOf(ctx context.Context, fullMethod string) (keys []string, protected bool) {
	keys = metadata.ValueFromIncomingContext(ctx, MetadataKey)
	return keys, len(keys) > 0 || s.cfg.Required != nil && s.cfg.Required(fullMethod)
}

// A response is what a record keeps of a call: a google.protobuf.Any with the message, or a
// google.rpc.Status, and the metadata.
type response struct {
	Message []byte `json:"message,omitempty"`
	Status  []byte `json:"status,omitempty"`
	Header  values `json:"header,omitempty"`
	Trailer values `json:"trailer,omitempty"`
}

// A call is the passage of a call that is protected.
type call struct {
	*server
	method    string
	completes func(error) bool // reports whether an error is a response, which a repeat gets, too; nil: none is
	command   onlyonce.Request
	admission *httponce.Admission

	// Of the last run:
	recorder *recorder
	made     any
	failed   error // the error of the handler that is not recorded as its response
}

// serve returns the response to a call, whose command do runs.
func (c *call) serve(ctx context.Context, keys []string, req any, do func(context.Context) (onlyonce.Answer[response], error)) (_ any, err error) {
	if c.command, err = c.server.command(ctx, keys, req, c.method); err != nil {
		return nil, rejection(err)
	}
	if c.admission, err = c.limiter.Admit(ctx, c.command.ID.Tenant); err != nil {
		return nil, rejection(err)
	}
	defer c.admission.Release()
	answer, err := do(ctx)
	switch {
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrInFlight):
		return nil, rejection(err)
	case c.failed != nil:
		send(ctx, c.recorder)
		return nil, c.failed
	case err != nil:
		return nil, rejection(err)
	case answer.Replayed:
		send(ctx, answer.Value)
		_ = grpc.SetHeader(ctx, metadata.Pairs(MetadataReplayed, "true")) // fails outside of a call
		return answer.Value.open(nil)
	}
	send(ctx, c.recorder)
	return answer.Value.open(c.made)
}

// run runs the handler, and returns what is recorded of it.
func (c *call) run(ctx context.Context, handler func(context.Context) (any, error)) (kept response, err error) {
	c.admission.Runs(onlyonce.Current(ctx))
	c.recorder, c.failed = new(recorder), nil
	c.made, err = handler(c.recorder.in(ctx))
	if err == nil || c.completes != nil && c.completes(err) {
		kept, err = keep(c.made, err)
	}
	if err != nil {
		c.failed = err
		if c.completes != nil && !isMarked(err) && isHeldInside(err) { // a transaction is rolled back
			err = onlyonce.Unknown(err)
		}
		return kept, err
	}
	header, trailer := c.recorder.metadata()
	kept.Header, kept.Trailer = c.stored(header), c.stored(trailer)
	return kept, nil
}

// command returns the command that a call asks for.
func (s *server) command(ctx context.Context, keys []string, req any, fullMethod string) (c onlyonce.Request, err error) {
	c.ID = onlyonce.ID{Tenant: s.cfg.Tenant(ctx), Operation: fullMethod}
	if c.ID.Key, err = httponce.ParseKey(keys); err != nil {
		return c, err
	}
	if c.ID.Tenant == "" {
		return c, httponce.Problem{Code: httponce.CodeTenantMissing, Detail: "The caller could not be identified. Nothing was done."}
	}
	if s.cfg.Operation != nil {
		c.ID.Operation = s.cfg.Operation(ctx, fullMethod)
	}
	if fullMethod == "" && c.ID.Operation == "" { // otherwise, all methods would share one namespace of keys
		return c, status.Error(codes.Internal, "grpconce: the method of the call is unknown, as that of a call that a gateway makes in its own process: let Config.Operation return a name")
	}
	message, ok := req.(proto.Message)
	if !ok {
		return c, status.Errorf(codes.Internal, "grpconce: the request is a %T and not a proto.Message", req)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return c, status.Errorf(codes.Internal, "grpconce: %v", err)
	}
	c.Fingerprint = onlyonce.Fingerprint([]byte(fullMethod), []byte(message.ProtoReflect().Descriptor().FullName()), body)
	return c, nil
}

// completes reports whether an error is a command's response, which a repeat gets, too.
func (s *server) completes(err error) bool {
	if _, retry := retryAfter(err); retry || isMarked(err) || isHeldInside(err) {
		return false
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange:
		return true
	}
	return false
}

// isMarked reports whether a handler has marked its error as Final or Unknown.
func isMarked(err error) bool {
	failure := onlyonce.Failure(err)
	return failure.State != onlyonce.StateFailed || failure.Final
}

// isHeldInside reports whether err is the rejection of a server that the handler has called, and that
// holds the call for a person's decision. If a repeat could find out, it would ask for one.
func isHeldInside(err error) bool {
	if _, retry := retryAfter(err); retry {
		return false
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain && info.GetReason() == strings.ToUpper(httponce.CodeOutcomeUnknown) {
			return true
		}
	}
	return false
}

// keep returns what is recorded of a response or an error.
func keep(made any, err error) (kept response, _ error) {
	deterministic := proto.MarshalOptions{Deterministic: true}
	if err != nil {
		kept.Status, err = deterministic.Marshal(status.Convert(err).Proto())
		return kept, err
	}
	message, ok := made.(proto.Message)
	if !ok {
		return kept, onlyonce.Unknown(status.Errorf(codes.Internal, "grpconce: the response is a %T and not a proto.Message", made))
	}
	var packed anypb.Any
	if err := anypb.MarshalFrom(&packed, message, deterministic); err != nil {
		return kept, onlyonce.Unknown(status.Errorf(codes.Internal, "grpconce: %v", err))
	}
	kept.Message, err = deterministic.Marshal(&packed)
	return kept, err
}

// open returns the response or the error that was recorded. made is the response of this run, or
// nil.
func (kept response) open(made any) (any, error) {
	var failed spb.Status
	var packed anypb.Any
	switch {
	case len(kept.Status) > 0:
		if err := proto.Unmarshal(kept.Status, &failed); err != nil {
			return nil, rejection(onlyonce.ErrCorrupt)
		}
		return nil, status.FromProto(&failed).Err()
	case made != nil:
		return made, nil
	}
	if err := proto.Unmarshal(kept.Message, &packed); err != nil {
		return nil, rejection(onlyonce.ErrCorrupt)
	}
	message, err := packed.UnmarshalNew()
	if err != nil {
		return nil, rejection(onlyonce.ErrCorrupt)
	}
	return message, nil
}

// rejection returns the error with which a call is rejected because of err. A status is one of
// command's only if err itself is one: an error of the store, and of an attempt that has lost
// its lease, may wrap one that is not for the client.
func rejection(err error) error {
	if _, own := err.(interface{ GRPCStatus() *status.Status }); own {
		return err
	}
	p := httponce.ProblemOf(err)
	number, _ := p.RPCCode()
	code := codes.Code(number)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: strings.ToUpper(p.Code), Domain: Domain}}
	if p.Retryable {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.RetryAfter)})
	}
	rejected, err := status.New(code, p.Detail).WithDetails(details...)
	if err != nil {
		return status.Error(code, p.Detail)
	}
	return rejected.Err()
}
