package grpconce

import (
	"context"
	"net/textproto"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/secretname"
)

// A recorder is the stream of a handler's call. It keeps the metadata that the handler sets,
// which is sent after the outcome has been recorded.
type recorder struct {
	grpc.ServerTransportStream

	mu              sync.Mutex
	header, trailer metadata.MD
	isSent          bool // the header, as far as the handler knows
}

// in returns a context whose metadata is set in the recorder. Without a call, it is ctx.
func (r *recorder) in(ctx context.Context) context.Context {
	r.ServerTransportStream = grpc.ServerTransportStreamFromContext(ctx)
	if r.ServerTransportStream == nil {
		return ctx
	}
	return grpc.NewContextWithServerTransportStream(ctx, r)
}

func (r *recorder) SetHeader(md metadata.MD) error { return r.addHeader(md, false) }

func (r *recorder) SendHeader(md metadata.MD) error { return r.addHeader(md, true) }

func (r *recorder) addHeader(md metadata.MD, send bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isSent {
		return status.Error(codes.Internal, "the header was sent")
	}
	r.header, r.isSent = metadata.Join(r.header, md), send
	return nil
}

func (r *recorder) SetTrailer(md metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trailer = metadata.Join(r.trailer, md)
	return nil
}

func (r *recorder) metadata() (header, trailer metadata.MD) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.header, r.trailer
}

// send sets the header and the trailer of a response. Outside of a call, it does nothing.
func send(ctx context.Context, from interface {
	metadata() (header, trailer metadata.MD)
},
) {
	header, trailer := from.metadata()
	_ = grpc.SetHeader(ctx, header)
	_ = grpc.SetTrailer(ctx, trailer)
}

// values is metadata as it is stored. Values of names that end in "-bin" may be any bytes.
type values map[string][][]byte

// stored returns the part of md that is stored.
func (s *server) stored(md metadata.MD) values {
	kept := make(values, len(md))
	for name, texts := range md {
		if !s.replays(name) {
			continue
		}
		for _, text := range texts {
			kept[name] = append(kept[name], []byte(text))
		}
	}
	return kept
}

// opened returns metadata that was stored.
func (v values) opened() metadata.MD {
	md := make(metadata.MD, len(v))
	for name, data := range v {
		for _, value := range data {
			md[name] = append(md[name], string(value))
		}
	}
	return md
}

func (kept response) metadata() (header, trailer metadata.MD) {
	return kept.Header.opened(), kept.Trailer.opened()
}

func (s *server) replays(name string) bool {
	if name == MetadataReplayed {
		return false
	}
	byDefault := !secretname.OfCredential(name) && !secretname.OfSecret(name) && !httpfield.OfOneExchange(textproto.CanonicalMIMEHeaderKey(name))
	if s.cfg.ReplayMetadata != nil {
		return s.cfg.ReplayMetadata(name, byDefault)
	}
	return byDefault
}
