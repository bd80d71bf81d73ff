package grpconce

import (
	"context"
	"errors"
	"net/http"
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
	// "/shop.v1.Shop/Charge".
	Operation func(ctx context.Context, fullMethod string) string
	// Required says that a method rejects calls without a key. Default: they pass through.
	Required func(fullMethod string) bool
	// Limits has the limits of calls: see httponce.NewLimiter for the fields that count.
	Limits httponce.Config
}

// UnaryServerInterceptor returns an interceptor that runs a handler once for each idempotency
// key. It panics on a nil Guard and on a Config without a Tenant. A handler's context carries
// the attempt (see onlyonce.Current). It ends when the lease is lost, but neither with the
// client nor at the deadline of the call.
func UnaryServerInterceptor(g *onlyonce.Guard, cfg Config) grpc.UnaryServerInterceptor {
	if cfg.Tenant == nil {
		panic("grpconce: UnaryServerInterceptor: Config.Tenant is nil: set a function that returns the tenant of a call")
	}
	s := &server{guard: g, cfg: cfg, limiter: httponce.NewLimiter(g, cfg.Limits)}
	return s.intercept
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

type server struct {
	guard   *onlyonce.Guard
	cfg     Config
	limiter *httponce.Limiter
}

// A response is what a record keeps of a call: a google.protobuf.Any with the message, or a
// google.rpc.Status.
type response struct {
	Message []byte `json:"message,omitempty"`
	Status  []byte `json:"status,omitempty"`
}

func (s *server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	keys := metadata.ValueFromIncomingContext(ctx, MetadataKey)
	if len(keys) == 0 && (s.cfg.Required == nil || !s.cfg.Required(info.FullMethod)) {
		return handler(ctx, req)
	}
	command, err := s.command(ctx, keys, req, info.FullMethod)
	if err != nil {
		return nil, rejection(err)
	}
	admission, err := s.limiter.Admit(ctx, command.ID.Tenant)
	if err != nil {
		return nil, rejection(err)
	}
	defer admission.Release()
	var made any
	var failed error
	answer, err := onlyonce.Do(ctx, s.guard, command, func(ctx context.Context) (kept response, err error) {
		admission.Runs(onlyonce.Current(ctx))
		if made, err = handler(ctx, req); err == nil || s.completes(err) {
			kept, err = keep(made, err)
		}
		failed = err
		return kept, err
	})
	switch {
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrInFlight):
		return nil, rejection(err)
	case failed != nil:
		return nil, failed
	case err != nil:
		return nil, rejection(err)
	}
	if answer.Replayed {
		_ = grpc.SetHeader(ctx, metadata.Pairs(MetadataReplayed, "true")) // fails outside of a call
		made = nil
	}
	return answer.Value.open(made)
}

// command returns the command that a call asks for.
func (s *server) command(ctx context.Context, keys []string, req any, fullMethod string) (c onlyonce.Request, err error) {
	c.ID = onlyonce.ID{Tenant: s.cfg.Tenant(ctx), Operation: fullMethod}
	header := http.Header{}
	if len(keys) > 0 {
		header[httponce.DefaultHeader] = keys
	}
	if c.ID.Key, err = httponce.ReadKey(&http.Request{Header: header}); err != nil {
		return c, err
	}
	if c.ID.Tenant == "" {
		return c, httponce.Problem{Code: httponce.CodeTenantMissing, Detail: "The caller could not be identified. Nothing was done."}
	}
	if s.cfg.Operation != nil {
		c.ID.Operation = s.cfg.Operation(ctx, fullMethod)
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
	if failure := s.guard.Failure(err); failure.State != onlyonce.StateFailed || failure.Final {
		return false // it is marked
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange:
		return true
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

// rejectionCodes are the codes of rejections, by the code of their Problem.
var rejectionCodes = map[string]codes.Code{
	httponce.CodeKeyMissing:       codes.InvalidArgument,
	httponce.CodeKeyInvalid:       codes.InvalidArgument,
	httponce.CodeTenantMissing:    codes.Unauthenticated,
	httponce.CodeKeyReused:        codes.FailedPrecondition,
	httponce.CodeOutcomeUnknown:   codes.FailedPrecondition,
	httponce.CodeInProgress:       codes.Aborted,
	httponce.CodeTooManyRequests:  codes.ResourceExhausted,
	httponce.CodeStoreUnavailable: codes.Unavailable,
	httponce.CodeOverloaded:       codes.Unavailable,
}

// rejection returns the error with which a call is rejected because of err. A status is one of
// command's only if err itself is one: an error of the store, and of an attempt that has lost
// its lease, may wrap one that is not for the client.
func rejection(err error) error {
	if _, own := err.(interface{ GRPCStatus() *status.Status }); own {
		return err
	}
	p := httponce.ProblemOf(err)
	code, ok := rejectionCodes[p.Code]
	if !ok {
		code = codes.Internal
	}
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
