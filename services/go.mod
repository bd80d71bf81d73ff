module github.com/onlyonce-go/onlyonce/services

go 1.26

require github.com/onlyonce-go/onlyonce v0.0.0
