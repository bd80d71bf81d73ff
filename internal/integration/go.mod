module github.com/onlyonce-go/onlyonce/internal/integration

go 1.26

require (
	github.com/onlyonce-go/onlyonce v0.0.0
	modernc.org/sqlite v1.60.1
)
