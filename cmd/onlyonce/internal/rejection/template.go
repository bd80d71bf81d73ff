package rejection

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// fields are the fields of a problem that a template can use.
type fields struct {
	Code       string
	Status     int
	Title      string
	Detail     string
	Retryable  bool
	RetryAfter int64 // seconds; 0: unknown
	Type       string
}

func fieldsOf(p httponce.Problem) fields {
	return fields{p.Code, p.Status, p.Title, p.Detail, p.Retryable, seconds(p.RetryAfter), p.Type}
}

// escaper is the function that ends every pipeline of a template.
const escaper = "_json"

// allowed are the functions that a template may call: none of them calls a value
// or makes a long text of a short one.
var allowed = map[string]bool{"and": true, "or": true, "not": true, "eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true, "print": true}

// Template returns a Writer that executes a text template over a problem's Code,
// Status, Title, Detail, Retryable, RetryAfter and Type. Every {{…}} prints its
// value as JSON, quotes included, so that no text ends a string of the document.
// The document must be JSON; where it is not, the problem is written in its own way.
func Template(text, contentType string) (Writer, error) {
	t, err := template.New("template").Funcs(template.FuncMap{escaper: asJSON}).Parse(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	if len(t.Templates()) != 1 {
		return nil, errors.New("the template defines another template: write only one")
	}
	if err := escape(t.Root); err != nil {
		return nil, err
	}
	for _, p := range samples {
		if err := try(t, p); err != nil {
			return nil, err
		}
	}
	return func(w http.ResponseWriter, r *http.Request, p httponce.Problem) {
		var doc bytes.Buffer
		if t.Execute(&limited{&doc}, fieldsOf(p)) != nil || !json.Valid(doc.Bytes()) {
			p.ServeHTTP(w, r)
			return
		}
		respond(w, p, contentType, doc.Bytes())
	}, nil
}

// samples have a text in every field that JSON must escape, and none in any.
var samples = []httponce.Problem{
	{Code: `a"b`, Status: 409, Title: "a\\b", Detail: "a\nb</script>\u2028", Retryable: true, RetryAfter: time.Second, Type: `"`},
	{Status: 500},
}

func try(t *template.Template, p httponce.Problem) error {
	var doc bytes.Buffer
	if err := t.Execute(&limited{&doc}, fieldsOf(p)); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	if !json.Valid(doc.Bytes()) {
		return fmt.Errorf("the output is not JSON: leave out the quotes around {{…}}, which prints them itself; the output is %.200q", doc.Bytes())
	}
	return nil
}

// A limited writer rejects a document that is longer than any rejection needs.
type limited struct{ *bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > 64<<10 {
		return 0, io.ErrShortWrite
	}
	return l.Buffer.Write(p)
}

func asJSON(v any) (string, error) {
	doc, err := json.Marshal(v)
	return string(doc), err
}

// escape ends every pipeline that prints with the escaper.
func escape(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TextNode, *parse.CommentNode:
		case *parse.ActionNode:
			if err := check(n.Pipe); err != nil {
				return err
			}
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
					NodeType: parse.NodeCommand,
					Args:     []parse.Node{parse.NewIdentifier(escaper)},
				})
			}
		case *parse.IfNode:
			if err := errors.Join(check(n.Pipe), escape(n.List), escape(n.ElseList)); err != nil {
				return err
			}
		case *parse.WithNode:
			if err := errors.Join(check(n.Pipe), escape(n.List), escape(n.ElseList)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%v is not supported: write {{.Code}} and the like, {{if …}} and {{with …}}", n)
		}
	}
	return nil
}

// check rejects a pipeline that calls a function that is not allowed.
func check(pipe *parse.PipeNode) error {
	for _, cmd := range pipe.Cmds {
		for _, arg := range cmd.Args {
			switch arg := arg.(type) {
			case *parse.IdentifierNode:
				if !allowed[arg.Ident] {
					return fmt.Errorf("the function %s is not supported: leave it out", arg.Ident)
				}
			case *parse.PipeNode:
				if err := check(arg); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
