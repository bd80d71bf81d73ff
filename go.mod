module github.com/onlyonce-go/onlyonce

go 1.26
