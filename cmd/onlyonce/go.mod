module github.com/onlyonce-go/onlyonce/cmd/onlyonce

go 1.26

require (
	github.com/onlyonce-go/onlyonce v0.0.0
	github.com/onlyonce-go/onlyonce/services v0.0.0
	github.com/spf13/cobra v1.10.2
	github.com/prometheus/client_golang v1.25.0
	modernc.org/sqlite v1.60.1
)
