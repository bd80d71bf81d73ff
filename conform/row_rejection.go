package conform

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// rejections returns the target's rejections of an empty key and of a different body
// under a used key. A request that is not rejected is left out.
func (p *probe) rejections() ([]recordedResponse, error) {
	if p.rejected != nil {
		return p.rejected, nil
	}
	p.rejected = []recordedResponse{}
	note := func(a recordedResponse, err error) error {
		if err == nil && a.rejected() {
			p.rejected = append(p.rejected, a)
		}
		return err
	}
	if err := note(p.send("an empty key", p.rawRequest(p.newCommand().body, ""))); err != nil {
		return nil, err
	}
	if p.unmet(needsVaryingBody) != "" {
		return p.rejected, nil
	}
	c, other := p.newCommand(), p.newCommand()
	other.key = c.key
	if _, err := p.sendNewCommand("a command", c); err != nil {
		return nil, err
	}
	return p.rejected, note(p.sendCommand("a different body under a used key", other))
}

func checkProblem(p *probe) (result, error) {
	rejected, err := p.rejections()
	if err != nil {
		return result{}, err
	}
	var shown []Exchange
	for _, a := range rejected {
		if kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type")); kind != "application/problem+json" {
			continue
		}
		shown = append(shown, a.exchange)
		if wrong := invalidProblem(a.response); wrong != "" {
			return fail("A rejection claims to be a problem document, but "+wrong+".", a.exchange), nil
		}
	}
	if len(shown) == 0 {
		for _, a := range rejected {
			shown = append(shown, a.exchange)
		}
		return unsupported("No rejection claims to be a problem document.", shown...), nil
	}
	return pass("Rejections are problem documents with the status of the response.", shown...), nil
}

// invalidProblem describes the first error in a problem document (RFC 9457), or returns "".
func invalidProblem(a response) string {
	var doc map[string]any
	if err := json.Unmarshal(a.body, &doc); err != nil || doc == nil {
		return "it is not a JSON object"
	}
	for _, name := range []string{"type", "title", "detail", "instance"} {
		if v, ok := doc[name]; ok {
			if _, ok := v.(string); !ok {
				return "its " + name + " is not a string"
			}
		}
	}
	if kind, ok := doc["type"].(string); ok {
		if _, err := url.Parse(kind); err != nil {
			return "its type is not a URI reference"
		}
	}
	if status, ok := doc["status"]; ok && status != float64(a.status) {
		return fmt.Sprintf("its status is %v, and that of the response is %d", status, a.status)
	}
	if doc["type"] == nil && doc["title"] == nil {
		return "it has neither a type nor a title"
	}
	return ""
}

// describedBy finds the target of a link whose relation is describedby.
var describedBy = regexp.MustCompile(`(?i)<([^>]*)>[^,<]*;\s*rel\s*=\s*"?(?:[^",;]* )?describedby\b`)

// documentation returns the link of a rejection to its documentation, or "".
func (a response) documentation() string {
	for _, link := range a.header.Values("Link") {
		if m := describedBy.FindStringSubmatch(link); m != nil {
			return m[1]
		}
	}
	var doc struct{ Type, Documentation, DocURL, Help string }
	if json.Unmarshal(a.body, &doc) == nil && strings.Contains(doc.Type, "/") {
		return doc.Type
	}
	return ""
}

// checkLink requests the page that a rejection links to, if it is on the target's server.
func checkLink(p *probe) (result, error) {
	rejected, err := p.rejections()
	if err != nil {
		return result{}, err
	}
	base, err := url.Parse(p.target.URL)
	if err != nil {
		return result{}, err
	}
	for _, a := range rejected {
		to := a.documentation()
		if to == "" {
			continue
		}
		u, err := base.Parse(to)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return fail(fmt.Sprintf("A rejection links to %q, which is not a page.", to), a.exchange), nil
		}
		if u.Scheme != base.Scheme || u.Host != base.Host {
			return pass(fmt.Sprintf("A rejection links to %s, which is on another server and was not requested.", u), a.exchange), nil
		}
		page, err := p.send("the page that the rejection links to", request{method: http.MethodGet, url: u.String(), header: http.Header{"Accept": {"text/html, */*"}}})
		if err != nil {
			return result{}, err
		}
		if page.status == http.StatusNotFound || page.status == http.StatusGone || page.status == 0 || page.status >= 500 {
			return fail(fmt.Sprintf("A rejection links to %s, which returns %v.", u, page.response), a.exchange, page.exchange), nil
		}
		return pass(fmt.Sprintf("A rejection links to %s.", u), a.exchange, page.exchange), nil
	}
	var shown []Exchange
	for _, a := range rejected {
		shown = append(shown, a.exchange)
	}
	return unsupported("No rejection links to documentation.", shown...), nil
}
