module github.com/onlyonce-go/onlyonce/deploy/deploytest

go 1.26.7

require (
	github.com/moby/patternmatcher v0.6.1
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
