package frameworks_test

import (
	"context"
	"net"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/grpconce"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func grpcServer(guard *onlyonce.Guard, authenticate grpc.UnaryServerInterceptor, accountOf func(context.Context) string) *grpc.Server {
	once := grpconce.UnaryServerInterceptor(guard, grpconce.Config{Tenant: accountOf})
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(authenticate, once),
		grpc.StreamInterceptor(grpconce.StreamServerInterceptor()),
	)
}

func grpcClient(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, append(opts, grpc.WithUnaryInterceptor(grpconce.UnaryClientInterceptor(grpconce.ClientConfig{})))...)
}

func TestGRPC_ARepeatGetsTheFirstResponse(t *testing.T) {
	s := newShop()
	server := grpcServer(s.guard, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(ctx, req)
	}, func(context.Context) string { return "acme" })
	defer server.Stop()
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "shop.v1.ShopService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Charge",
		Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: chargeProcedure}, func(context.Context, any) (any, error) {
				s.runs.Add(1)
				return wrapperspb.String("charged"), nil
			})
		},
	}}}, s)
	l := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(l) }()
	conn, err := grpcClient("passthrough:shop", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, key := range []string{"k", "k", ""} { // the client makes the last one
		ctx := t.Context()
		if key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, grpconce.MetadataKey, key)
		}
		var out wrapperspb.StringValue
		if err := conn.Invoke(ctx, chargeProcedure, wrapperspb.String("a"), &out); err != nil || out.GetValue() != "charged" {
			t.Errorf("got %q, %v", out.GetValue(), err)
		}
	}
	if s.runs.Load() != 2 || s.told(onlyonce.OutcomeExecuted) != 2 || !s.operations()[chargeProcedure] {
		t.Errorf("%d runs of %v", s.runs.Load(), s.operations())
	}
}
