module github.com/onlyonce-go/onlyonce/adapters/echo5once

go 1.26.0

require (
	github.com/labstack/echo/v5 v5.4.4
	github.com/onlyonce-go/onlyonce v0.0.0
)

require golang.org/x/time v0.15.0 // indirect
