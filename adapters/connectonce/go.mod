module github.com/onlyonce-go/onlyonce/adapters/connectonce

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/onlyonce-go/onlyonce v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc
	google.golang.org/protobuf v1.36.12
)
