package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// A description is an OpenAPI document.
type description struct {
	t    *testing.T
	root map[string]any
	seen map[string]bool // the members of responses, and the statuses of operations
}

// at returns the value at a path of names, following references.
func (d *description) at(v any, names ...string) map[string]any {
	m, _ := v.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		if m = d.at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...); m == nil {
			d.t.Fatalf("%s leads nowhere", ref)
		}
	}
	if len(names) == 0 {
		return m
	}
	return d.at(m[names[0]], names[1:]...)
}

// schemaWords are the keywords that mistake understands: with another one, a schema would
// say more than is checked.
var schemaWords = []string{
	"type", "enum", "pattern", "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "items",
	"properties", "required", "additionalProperties", "anyOf", "description", "default",
}

// mistake says where a JSON value violates its schema, or returns "".
func (d *description) mistake(schema map[string]any, v any, where string) string {
	for word := range schema {
		if !slices.Contains(schemaWords, word) {
			d.t.Fatalf("the test does not understand %s", word)
		}
	}
	if any, ok := schema["anyOf"].([]any); ok {
		var all []string
		for _, one := range any {
			m := d.mistake(d.at(one), v, where)
			if m == "" {
				return ""
			}
			all = append(all, m)
		}
		return strings.Join(all, ", and ")
	}
	types, ok := schema["type"].([]any)
	if !ok {
		types = []any{schema["type"]}
	}
	if is := typeOf(v); !slices.Contains(types, any(is)) && (is != "integer" || !slices.Contains(types, any("number"))) {
		return fmt.Sprintf("%s is %v, which is not %v", where, v, types)
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Sprintf("%s is %v, which is not one of %v", where, v, enum)
	}
	number := func(word string, otherwise int) int {
		if n, ok := schema[word].(int); ok {
			return n
		}
		return otherwise
	}
	outside := func(n float64, least, most string) bool {
		return n < float64(number(least, math.MinInt)) || n > float64(number(most, math.MaxInt))
	}
	switch v := v.(type) {
	case float64:
		if outside(v, "minimum", "maximum") {
			return fmt.Sprintf("%s is %v", where, v)
		}
	case string:
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			return fmt.Sprintf("%s is %q, which does not match %s", where, v, pattern)
		}
		if _, err := time.Parse(time.RFC3339Nano, v); schema["format"] == "date-time" && err != nil {
			return fmt.Sprintf("%s: %v", where, err)
		}
		if outside(float64(len([]rune(v))), "minLength", "maxLength") {
			return fmt.Sprintf("%s has %d characters", where, len(v))
		}
	case []any:
		if outside(float64(len(v)), "minItems", "maxItems") {
			return fmt.Sprintf("%s has %d elements", where, len(v))
		}
		for i, e := range v {
			if m := d.mistake(d.at(schema["items"]), e, fmt.Sprintf("%s[%d]", where, i)); m != "" {
				return m
			}
		}
	case map[string]any:
		return d.objectMistake(schema, v, where)
	}
	return ""
}

func (d *description) objectMistake(schema, v map[string]any, where string) string {
	properties := d.at(schema["properties"])
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Sprintf("%s has no %s", where, name)
		}
		if properties[name.(string)] == nil {
			d.t.Fatalf("%s requires %s, which it does not describe", where, name)
		}
	}
	for name, member := range v {
		property, ok := properties[name]
		if !ok && schema["additionalProperties"] == false {
			return fmt.Sprintf("%s has %s, which is not described", where, name)
		}
		if !ok {
			continue
		}
		d.seen[fmt.Sprintf("%p %s", properties, name)] = true
		if m := d.mistake(d.at(property), member, where+"."+name); m != "" {
			return m
		}
	}
	return ""
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	}
	return "object"
}

// members calls each with every member that a schema describes.
func (d *description) members(schema map[string]any, each func(key, name string)) {
	if properties := d.at(schema["properties"]); properties != nil {
		for name, property := range properties {
			each(fmt.Sprintf("%p %s", properties, name), name)
			d.members(d.at(property), each)
		}
	}
	if items := d.at(schema["items"]); items != nil {
		d.members(items, each)
	}
	any, _ := schema["anyOf"].([]any)
	for _, one := range any {
		d.members(d.at(one), each)
	}
}

// A described request is one whose response must be as its operation is described.
type describedRequest struct {
	method, path, target string // the path as it is described, and the request's path if it differs
	body                 string
	header               []string
	want                 int
	wrongBody            bool // the body is not as described
}

// check sends a request and compares its response with the description.
func (d *description) check(s *served, q describedRequest) answer {
	d.t.Helper()
	target := q.target
	if target == "" {
		target = q.path
	}
	got := s.do(q.method, target, q.body, q.header...)
	name := fmt.Sprintf("%s %s", q.method, target)
	if got.status != q.want {
		d.t.Errorf("%s %s: got %d %s, want %d", name, q.body, got.status, got.body, q.want)
		return got
	}
	op := d.at(d.root, "paths", q.path, strings.ToLower(q.method))
	response := d.at(op, "responses", fmt.Sprint(got.status))
	if response == nil {
		d.t.Errorf("%s responds with %d, which is not described", name, got.status)
		return got
	}
	d.seen[fmt.Sprintf("%s %s %d", q.method, q.path, got.status)] = true
	d.checkResponse(name, response, got)
	if q.body != "" && (q.want < 300 || q.wrongBody) {
		var v any
		wrong := "it is not JSON"
		if json.Unmarshal([]byte(q.body), &v) == nil {
			wrong = d.mistake(d.at(op, "requestBody", "content", "application/json", "schema"), v, "the request")
		}
		if (wrong != "") != q.wrongBody {
			d.t.Errorf("%s %s: the description says of the body: %q", name, q.body, wrong)
		}
	}
	return got
}

func (d *description) checkResponse(name string, response map[string]any, got answer) {
	d.t.Helper()
	for header := range got.header {
		special := strings.HasPrefix(header, "Idempotency-") || slices.Contains([]string{"Location", "Retry-After"}, header)
		if special && d.at(response, "headers", header) == nil {
			d.t.Errorf("%s: %d has the header %s, which is not described", name, got.status, header)
		}
	}
	for header := range d.at(response, "headers") {
		if value := got.header.Get(header); value != "" {
			d.seen[fmt.Sprintf("%p %s", response, header)] = true
			if m := d.mistake(d.at(response, "headers", header, "schema"), value, header); m != "" {
				d.t.Errorf("%s: %s", name, m)
			}
		}
	}
	content := d.at(response, "content")
	if len(content) == 0 {
		if got.body != "" {
			d.t.Errorf("%s: %d has a body, which is not described", name, got.status)
		}
		return
	}
	schema := d.at(content, got.header.Get("Content-Type"), "schema")
	if schema == nil {
		d.t.Errorf("%s: %d has the content type %s, which is not described", name, got.status, got.header.Get("Content-Type"))
		return
	}
	var v any = got.body
	if !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain;") {
		if err := json.Unmarshal([]byte(got.body), &v); err != nil {
			d.t.Errorf("%s: %v", name, err)
			return
		}
	}
	if m := d.mistake(schema, v, "the body"); m != "" {
		d.t.Errorf("%s: %d: %s: %s", name, got.status, m, got.body)
	}
}

// rare are the responses and headers that the tests do not bring about: limits, failures, and
// a request whose first one is still running.
var rare = []string{"429", "500", "503", "POST /orders 409", "Retry-After"}

// checkSeen reports described responses that were never seen.
func (d *description) checkSeen() {
	for path, methods := range d.at(d.root, "paths") {
		for method := range d.at(methods) {
			for status := range d.at(methods, method, "responses") {
				key := fmt.Sprintf("%s %s %s", strings.ToUpper(method), path, status)
				if slices.Contains(rare, status) || slices.Contains(rare, key) {
					continue
				}
				response := d.at(methods, method, "responses", status)
				if !d.seen[key] {
					d.t.Errorf("%s is described, and was not seen", key)
				}
				for header := range d.at(response, "headers") {
					if !slices.Contains(rare, header) && !d.seen[fmt.Sprintf("%p %s", response, header)] {
						d.t.Errorf("%s has %s by its description, which was not seen", key, header)
					}
				}
				for contentType := range d.at(response, "content") {
					d.members(d.at(response, "content", contentType, "schema"), func(member, name string) {
						if !d.seen[member] {
							d.t.Errorf("%s has %s by its description, which was not seen", key, name)
						}
					})
				}
			}
		}
	}
}

// checkMethods checks that every path rejects each method that is not described.
func (d *description) checkMethods(s *served, concrete func(string) string) {
	for path, methods := range d.at(d.root, "paths") {
		var allowed []string
		for method := range d.at(methods) {
			allowed = append(allowed, strings.ToUpper(method))
			if method == "get" {
				allowed = append(allowed, "HEAD")
			}
		}
		slices.Sort(allowed)
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if slices.Contains(allowed, method) {
				continue
			}
			got := s.do(method, concrete(path), "")
			if got.status != 405 || got.header.Get("Allow") != strings.Join(allowed, ", ") {
				d.t.Errorf("%s %s: got %d, Allow: %s, want 405 and %v", method, path, got.status, got.header.Get("Allow"), allowed)
			}
			d.checkResponse(method+" "+path, d.at(d.root, "components", "responses", "MethodNotAllowed"), got)
		}
	}
}

// errorRow is a row of the table of errors in the document of an API.
var (
	errorRow  = regexp.MustCompile(`(?m)^\| \d{3} \| (.*?) \|`)
	errorCode = regexp.MustCompile("`([a-zA-Z_]+)`")
)

// checkCodes checks that the description has the error codes of the document.
func (d *description) checkCodes(api string, code map[string]any) {
	described := map[string]bool{}
	for _, c := range code["enum"].([]any) {
		described[c.(string)] = true
	}
	documented := map[string]bool{}
	for _, row := range errorRow.FindAllStringSubmatch(document(d.t, api), -1) {
		for _, c := range errorCode.FindAllStringSubmatch(row[1], -1) {
			documented[c[1]] = true
		}
	}
	if !maps.Equal(described, documented) {
		d.t.Errorf("the description has the codes %v, the document %v", slices.Sorted(maps.Keys(described)), slices.Sorted(maps.Keys(documented)))
	}
}

// describe gets the description of an API from its server.
func describe(t *testing.T, s *served, api string) *description {
	t.Helper()
	got := s.do("GET", "/openapi/"+api+".yaml", "")
	d := &description{t: t, seen: map[string]bool{}}
	if err := yaml.Unmarshal([]byte(got.body), &d.root); err != nil || got.header.Get("Content-Type") != "application/yaml" || d.root["openapi"] != "3.1.0" {
		t.Fatalf("got %d %s, %v", got.status, got.header.Get("Content-Type"), err)
	}
	return d
}
