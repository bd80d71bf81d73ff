package server

import "net/http"

// A StatusWriter takes note of the status of the response that it passes on.
type StatusWriter struct {
	http.ResponseWriter
	Status int // 0: none so far
}

func (c *StatusWriter) WriteHeader(status int) {
	if c.Status < http.StatusOK { // those before were informational
		c.Status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *StatusWriter) Write(p []byte) (int, error) {
	if c.Status < http.StatusOK {
		c.Status = http.StatusOK
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (c *StatusWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
