module github.com/onlyonce-go/onlyonce/stores/cryptstore

go 1.26.0

require (
	github.com/klauspost/compress v1.20.3
	github.com/onlyonce-go/onlyonce v0.0.0
)
