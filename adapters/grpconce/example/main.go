// Example is a gRPC server whose calls are idempotent, and a client whose first response is
// lost:
//
//	go run ./adapters/grpconce/example
//
// It keeps its records in memory. Use a store that survives a restart instead.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/grpconce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	text, err := run()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
}

const method = "/shop.v1.Shop/Charge"

// service stands for the code that protoc generates.
var service = grpc.ServiceDesc{
	ServiceName: "shop.v1.Shop", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Charge", Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.Int64Value)
		if err := decode(in); err != nil {
			return nil, err
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: method}, charge)
	}}},
}

var charges atomic.Int64

func charge(_ context.Context, req any) (any, error) {
	amount := req.(*wrapperspb.Int64Value).GetValue()
	if amount <= 0 {
		return nil, status.Error(codes.InvalidArgument, "amount must be positive")
	}
	return wrapperspb.String(fmt.Sprintf("charge %d of %d", charges.Add(1), amount)), nil
}

// run starts the server and calls it once.
func run() (string, error) {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	once := grpconce.UnaryServerInterceptor(guard, grpconce.Config{
		Tenant:   func(context.Context) string { return "the authenticated caller" },
		Required: func(string) bool { return true },
	})
	server := grpc.NewServer(grpc.UnaryInterceptor(once), grpc.StreamInterceptor(grpconce.StreamServerInterceptor()))
	defer server.Stop()
	server.RegisterService(&service, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = server.Serve(l) }()

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpconce.UnaryClientInterceptor(grpconce.ClientConfig{}), loseFirst()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	var out wrapperspb.StringValue
	err = conn.Invoke(context.Background(), method, wrapperspb.Int64(5), &out)
	return out.GetValue(), err
}

// loseFirst returns an interceptor that loses the first response, as a network does.
func loseFirst() grpc.UnaryClientInterceptor {
	var lost atomic.Bool
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if err := invoke(ctx, method, req, reply, conn, opts...); err != nil || lost.Swap(true) {
			return err
		}
		return status.Error(codes.Unavailable, "the connection was cut")
	}
}
