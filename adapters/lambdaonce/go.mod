module github.com/onlyonce-go/onlyonce/adapters/lambdaonce

go 1.26.0

require (
	github.com/aws/aws-lambda-go v1.55.1
	github.com/onlyonce-go/onlyonce v0.0.0
)
