package slots

import "net/http"

// A Response is the response to a request that holds a slot.
type Response struct {
	http.ResponseWriter
	slot *Slot
}

// Response returns w as the response to the request that holds the slot.
func (sl *Slot) Response(w http.ResponseWriter) Response { return Response{w, sl} }

func (r Response) Write(p []byte) (int, error) {
	r.slot.response.begin()
	n, err := r.ResponseWriter.Write(p)
	_ = r.slot.response.done(n)
	return n, err
}

// WriteHeader tells the request's body that the response begins.
func (r Response) WriteHeader(status int) {
	if body := r.slot.body; body != nil && (status >= 200 || status == http.StatusSwitchingProtocols) {
		body.responseBegins()
	}
	r.slot.response.begin()
	r.ResponseWriter.WriteHeader(status)
	_ = r.slot.response.done(0)
}

// FlushError is called by http.ResponseController.
func (r Response) FlushError() error {
	r.slot.response.begin()
	err := http.NewResponseController(r.ResponseWriter).Flush()
	_ = r.slot.response.done(0)
	return err
}

func (r Response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
