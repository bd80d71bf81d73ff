package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestSecurity_SecretsInAResponseAreNotShown(t *testing.T) {
	r, err := newRedaction([]string{"/customer/email", "/items/*/owner", "/a~1b/~0", "phone"})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"password":"hunter2"}`, `{"newPassword":"hunter2"}`, `{"user":{"api-key":["hunter2"]}}`, `[{"ACCESS_TOKEN":{"a":"hunter2"}}]`, `{"pin":"hunter2"}`,
		`{"customer":{"email":"hunter2"}}`, `{"items":[{"owner":"x hunter2"},{"owner":["hunter2"]}]}`, `{"a/b":{"~":"hunter2"}}`, `{"Phone":"hunter2"}`,
		`{"a":1}{"secret":"hunter2"}`, `{"a":1,"b":} "password":"hunter2"`, `{"p\u0061ssword":"hunter2"}`,
		"password=hunter2&a=1", "user[password]=hunter2", "a=1&user['password']=hunter2", "password[]=hunter2", "a[password][0]=hunter2", "a: 1\nAuthorization: Bearer hunter2\nb: 2", "<password>hunter2</password>", `<a password="hunter2">`, "api key: hunter2", "{\"password\": \"hunter2\"", `[section] secret = hunter2`,
		"\xff\xfe binary hunter2", "\x00hunter2",
		"password=a&hunter2", "password: a<hunter2", "<password>a<b>hunter2</b></password>", "<password><![CDATA[a\nhunter2]]></password>", `<x:password type="a">hunter2</x:password>`,
		"<password\n a='1'>\nhunter2\n</password >", "<password>hunter2", `<entry key="password">hunter2</entry>`, "<entry key='password'>\n  hunter2\n</entry>", "password: <![CDATA[\nhunter2]]>",
		"\ufeff{\"customer\":{\"email\":\"hunter2\"}}", " [1]{\"password\":\"hunter2\"}", `{"customer":{"email":"a","email":"hunter2"}}`, `{'customer':{'email':'hunter2'}}`, `{"a":1,}{"customer":{"email":"hunter2"}}`,
		`{"a":"{\"password\":\"hunter2\"}"}`, `{"a":"[{\"b\":\"{\\\"pin\\\":\\\"hunter2\\\"}\"}]"}`, `"{\"password\":\"hunter2\"}"`, `{"{\"password\":\"hunter2\"}":1}`, `{"a":["https://a/b?c=d&access_token=hunter2"]}`, `{"a":"password=hunter2"}`, `{"a":"{\"password\":\"hunter2"}`,
		`log: {"pass\u0077ord":"hunter2"}`, `log: {"password"\u003a"hunter2"}`, "pass%77ord=hunter2", "?q=%7B%22password%22%3A%22hunter2%22%7D", "p&#97;ssword=hunter2", "x&lt;password&gt;hunter2",
		"password:\n  hunter2", "password\n= hunter2", "\"password\"\n:\n\"hunter2\"", "a:\n  password: |\n    a\n\n    hunter2\nb: 1", "password: \"a\nhunter2\"", "password: [\nhunter2\n]", "password = a \\\nhunter2", "Authorization: Bearer\n  hunter2",
		`{"name":"password","value":"hunter2"}`, `{"value":"hunter2","name":"password"}`, `[{"key":"api_key","value":{"a":"hunter2"}}]`, `{"value":{"a":["hunter2"]},"Header":"X-Api-Key"}`, `{"fields":[{"type":"text","label":"Card number","text":"hunter2"}]}`,
		`<input type="text" name="password" value="hunter2">`, "<input value='hunter2' name=password>", `<form><meta name="csrf-token" content="hunter2"/></form>`, "<input\n id=\"card-number\"\n value=\"hunter2\n", "<input name=password value=\"" + strings.Repeat("a", 2000) + "hunter2\">",
		"card number = hunter2", "my pin: hunter2", "c=1&pin=hunter2", "password => hunter2", "password := 'hunter2'", `{\"password\":\"hunter2\"}`,
	} {
		for _, kind := range []string{"", "application/json", "text/plain"} {
			if text, note := r.body([]byte(body), kind, previewSize); strings.Contains(text, "hunter2") || text == "" && note == "" {
				t.Errorf("%s of type %q is shown as %q, %q", body, kind, text, note)
			}
		}
	}
	header := r.preview(onlyonce.Result{Header: map[string][]string{
		"Set-Cookie": {"a=hunter2"}, "X-Api-Key": {"hunter2"}, "Location": {"/a"}, "Link": {"</a?b=c&token=hunter2>"}, "X-Debug": {`{"password":"hunter2"}`},
	}}, previewSize).Header
	if text := fmt.Sprint(header); strings.Contains(text, "hunter2") || !strings.Contains(text, "{Location /a}") {
		t.Errorf("the header is shown as %s", text)
	}
	if text := r.text("connect: password=hunter2 failed"); strings.Contains(text, "hunter2") {
		t.Errorf("an error is shown as %s", text)
	}
}

func TestConsole_WhatIsNoSecretIsShown(t *testing.T) {
	r, err := newRedaction(nil)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"b":1.50,"a":[true,null,"x<y"],"c":{}}`: "{\n  \"b\": 1.50,\n  \"a\": [\n    true,\n    null,\n    \"x<y\"\n  ],\n  \"c\": {}\n}\n",
		`[]`:                             "[]\n",
		`{"shipping":"fast"}`:            "{\n  \"shipping\": \"fast\"\n}\n",
		"1\n2":                           "1\n2",
		"":                               "",
		"plain: text\n\tindented ü":      "plain: text\n\tindented ü",
		`{"name":"Ada","value":1}`:       "{\n  \"name\": \"Ada\",\n  \"value\": 1\n}\n",
		`{"a":{"name":"pin"},"value":1}`: "{\n  \"a\": {\n    \"name\": \"pin\"\n  },\n  \"value\": 1\n}\n",
		`<input name="q" value="1">`:     `<input name="q" value="1">`,
		"token in the request: none\na=b\npassword: •••\nc: 1": "token in the request: none\na=b\npassword: •••\nc: 1",
		"see https://a/reset-password?b=c":                     "see https://a/reset-password?b=c",
		"shipping: fast\nspin=2":                               "shipping: fast\nspin=2",
		"<a>b</a><token>c</token><d e='f'>g</d>":               "<a>b</a><token•••</token><d e='f'>g</d>",
		"{\"a\":\"\u202e\"}":                                   "{\n  \"a\": \"\\u202e\"\n}\n",
	} {
		if text, note := r.body([]byte(body), "", previewSize); text != want || note != "" {
			t.Errorf("%q is shown as %q, %q", body, text, note)
		}
	}
	for name, body := range map[string]string{
		"a long text":   strings.Repeat("ü", previewSize),
		"a long string": `{"a":"` + strings.Repeat("b", 4*previewSize) + `"}`,
		"a long list":   "[" + strings.Repeat("1,", 4*previewSize) + "1]",
		"deep":          strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"deep objects":  strings.Repeat(`{"a":`, 9000) + strings.Repeat("}", 9000),
	} {
		if text, note := r.body([]byte(body), "application/json", previewSize); len(text) > 2*previewSize || !strings.Contains(note, "Cut after") && !strings.Contains(note, "not valid") {
			t.Errorf("%s is shown with %d bytes, %q", name, len(text), note)
		}
	}
}

func FuzzPreviewHidesAMember(f *testing.F) {
	f.Add(`{"a":1,`, `}`)
	f.Add(`[[{"a":[],`, `}]]`)
	r, err := newRedaction(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		body := before + `"password":"hunter2"` + after
		if strings.Contains(before+after, "hunter2") {
			return
		}
		text, _ := r.body([]byte(body), "application/json", previewSize)
		if strings.Contains(text, `"password": "hunter2"`) {
			t.Errorf("%q is shown as %q", body, text)
		}
	})
}

func TestConsole_ARecordShowsTheSummaryOfItsRequest(t *testing.T) {
	s := open(t, nil)
	if _, err := s.store.Claim(t.Context(), onlyonce.Claim{
		ID: payment, Owner: "0123456789abcdef", SkipFingerprint: true, Lease: time.Hour, Summary: `POST /v1/payments /note="<b>" /amount=5 /password=hunter2`,
	}); err != nil {
		t.Fatal(err)
	}
	_, page := s.logIn(bobsToken).get("records/" + recordID(payment))
	if !strings.Contains(page, "POST /v1/payments /note=&#34;&lt;b&gt;&#34; /amount=5") || strings.Contains(page, "hunter2") {
		t.Errorf("the page is\n%s", page)
	}
}

// Whoever calls a service can have it store such a text. A search whose time grew with the square
// of its length would take hours here.
func TestPreview_ALongRunOfSeparatorsIsReadOnce(t *testing.T) {
	r, err := newRedaction(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, separator := range []string{":", "%3a", "&#58;", `\u003a`} {
		if shown := r.text(strings.Repeat(separator, 1<<20) + "password=x"); strings.HasSuffix(shown, "x") {
			t.Errorf("after %q, the secret is shown", separator)
		}
	}
}
