package httponce_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestInTx_TheRestOfAHandlerThatRunsAgainReadsTheSameBody(t *testing.T) {
	s := newShop()
	s.Twice = true
	var read []string
	g := onlyonce.NewTx(s, onlyonce.Config{})
	h := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 2)
		_, _ = io.ReadFull(r.Body, first)
		if err := httponce.InTx(r, g, func(tx order) error {
			rest, err := io.ReadAll(r.Body)
			read = append(read, string(rest))
			tx["order"] = string(rest)
			return err
		}); err != nil {
			t.Errorf("InTx: %v", err)
		}
	}), single)
	wantResponse(t, post(h, "k", "green tea"), 200, "")
	if got := strings.Join(read, "|"); got != "een tea|een tea" || s.Row("order") != "een tea" {
		t.Errorf("the runs read %q, and the row is %q", got, s.Row("order"))
	}
}

// shift takes the first segment off the request's path, as a router that works in
// place does, and changes and reads everything else it can. It returns the values that it read.
func shift(r *http.Request) (saw string, err error) {
	segment, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	r.URL.Path = "/" + rest
	r.Header.Add("X-Segment", segment)
	r.Method, r.Host = "PUT", "other"
	if err := r.ParseForm(); err != nil {
		return "", err
	}
	r.Form.Add("segment", segment)
	r.SetPathValue("id", r.PathValue("id")+segment)
	saw = fmt.Sprint(segment, r.Header["X-Segment"], r.Form, r.PathValue("id"))
	mr, err := r.MultipartReader()
	if err != nil {
		return saw, err
	}
	part, err := mr.NextPart()
	if err != nil {
		return saw, err
	}
	text, err := io.ReadAll(part)
	return saw + " " + string(text), err
}

func TestInTx_AFunctionThatRunsAgainSeesTheRequestAsItWas(t *testing.T) {
	for _, key := range []string{"k", ""} {
		for name, wrap := range map[string]func(*shop, func(*http.Request) error) http.Handler{
			"WrapTx": func(s *shop, fn func(*http.Request) error) http.Handler {
				return httponce.WrapTx(onlyonce.NewTx(s, onlyonce.Config{}), func(_ http.ResponseWriter, r *http.Request, _ order) error { return fn(r) }, single)
			},
			"InTx": func(s *shop, fn func(*http.Request) error) http.Handler {
				g := onlyonce.NewTx(s, onlyonce.Config{})
				return httponce.Wrap(g.Guard, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if err := httponce.InTx(r, g, func(order) error { return fn(r) }); err != nil {
						t.Errorf("InTx: %v", err)
					}
				}), single)
			},
		} {
			t.Run(name+" "+key, func(t *testing.T) {
				s := newShop()
				s.Twice = true
				var saw []string
				h := wrap(s, func(r *http.Request) error {
					got, err := shift(r)
					if err != nil && (key != "" || name != "InTx") { // where the body stays read
						t.Error(err)
					}
					saw = append(saw, strings.TrimSuffix(got, " tea"))
					return nil
				})
				r := keyed(http.MethodPost, "/orders/7?a=1", key, "--b\r\n\r\ntea\r\n--b--\r\n")
				if key == "" {
					r.Header.Del("Idempotency-Key")
				}
				r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
				r.SetPathValue("id", "7")
				wantResponse(t, serve(h, r), 200, "")
				if want := "orders[orders] map[a:[1] segment:[orders]]7orders"; len(saw) != 2 || saw[0] != want || saw[1] != want {
					t.Errorf("the runs saw %q", saw)
				}
				if r.URL.Path != "/orders/7" && name == "WrapTx" {
					t.Errorf("those round the handler see %q", r.URL.Path)
				}
			})
		}
	}
}

func TestInTx_FilesOfAFormAreRemovedWithTheRequest(t *testing.T) {
	form := "--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\ntea\r\n--b--\r\n"
	parse := func(r *http.Request) error { return r.ParseMultipartForm(0) } // with no memory for files
	s := newShop()
	s.Twice = true
	g := onlyonce.NewTx(s, onlyonce.Config{})
	for name, h := range map[string]http.Handler{
		"Wrap": httponce.Wrap(g.Guard, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := parse(r); err != nil {
				t.Error(err)
			}
		}), single),
		"WrapTx": httponce.WrapTx(g, func(_ http.ResponseWriter, r *http.Request, _ order) error { return parse(r) }, single),
		"InTx":   pay(s, onlyonce.Config{}, func(_ http.ResponseWriter, r *http.Request) error { return parse(r) }, func(http.ResponseWriter, *http.Request, error) {}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			r := keyed(http.MethodPost, "/orders", name, form)
			r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			wantResponse(t, serve(h, r), 200, "")
			if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
				t.Errorf("there are still %v, %v", left, err)
			}
		})
	}
}

func TestInTx_WhatARunSaidOfItsResponseIsForgottenWithIt(t *testing.T) {
	s := newShop()
	s.Twice = true
	runs := 0
	h := pay(s, onlyonce.Config{}, func(w http.ResponseWriter, r *http.Request) error {
		if runs++; runs == 1 {
			httponce.DontStore(r)
		}
		return made(w, r)
	}, func(_ http.ResponseWriter, _ *http.Request, err error) {
		if err != nil {
			t.Errorf("InTx: %v", err)
		}
	})
	for range 2 {
		wantResponse(t, post(h, "k", "tea"), 201, "<p>made")
	}
	if runs != 2 {
		t.Errorf("%d runs", runs)
	}
}
