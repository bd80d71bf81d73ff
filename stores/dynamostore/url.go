package dynamostore

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"

	"github.com/onlyonce-go/onlyonce/stores/internal/serverurl"
)

// A URL is the parsed URL of a store. It has no credentials: the AWS SDK finds them in the
// environment, in its files, or in the machine's role.
type URL struct {
	Region   string
	Endpoint string // for dynamodb.Options.BaseEndpoint; "": that of the region
	Config   Config
}

// parameters are the names of a URL's parameters. Each may be given once.
var parameters = []string{"accept_risks", "clock_skew", "endpoint", "timeout"}

var errForm = errors.New("write it as dynamodb://REGION/TABLE, such as dynamodb://eu-central-1/onlyonce, without credentials: the AWS SDK finds them in its environment variables, in its files, or in the machine's role")

// regionForm matches the names of regions.
var regionForm = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// ParseURL parses the URL of a store. The errors do not repeat a password.
//
//	dynamodb://REGION/TABLE
//	dynamodb://REGION/TABLE?endpoint=http://127.0.0.1:8000
//
// TABLE is Config.Table, by default "onlyonce". The parameters clock_skew and timeout
// (durations such as 500ms) and accept_risks, whose names are separated by commas, are also
// those of the Config. The parameter endpoint is the base URL of a VPC endpoint or of an
// emulator.
func ParseURL(raw string) (*URL, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("dynamostore: invalid URL of the store: %w", err)
	}
	return u, nil
}

func parseURL(raw string) (*URL, error) {
	parsed, ok := serverurl.Parse(raw, "dynamodb")
	if !ok || parsed.User != nil || len(parsed.Hosts) != 1 || !regionForm.MatchString(parsed.Hosts[0]) {
		return nil, errForm
	}
	p := parsed.Params
	if err := p.Check(parameters, ""); err != nil {
		return nil, err
	}
	if parsed.Path != "" && !tableForm.MatchString(parsed.Path) {
		return nil, errors.New("the text after the region is not the name of a table, which has 3 to 255 letters, digits, dots, hyphens or underscores")
	}
	u := &URL{Region: parsed.Hosts[0], Endpoint: p.Get("endpoint"), Config: Config{Table: parsed.Path, AcceptRisks: p.List("accept_risks")}}
	if u.Endpoint != "" {
		e, err := url.Parse(u.Endpoint)
		if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil || e.RawQuery != "" || e.Fragment != "" {
			return nil, errors.New("the endpoint is not a URL such as https://HOST or http://127.0.0.1:8000, without credentials")
		}
	}
	var err error
	if u.Config.ClockSkew, err = p.Duration("clock_skew"); err != nil {
		return nil, err
	}
	if u.Config.Timeout, err = p.Duration("timeout"); err != nil {
		return nil, err
	}
	return u, u.Config.check()
}
