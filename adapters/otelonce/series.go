package otelonce

import (
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onlyonce-go/onlyonce"
)

// A series is a combination of attributes.
type series struct {
	operation string
	outcome   onlyonce.Outcome
}

// A point has the options that are passed with a measurement of a series. It is made once, so that
// measuring allocates nothing.
type point struct {
	series
	add    []metric.AddOption    // with both attributes
	record []metric.RecordOption // with the outcome only
}

// point returns that of a series, or that of all operations without metrics of their own.
func (t *Telemetry) point(s series) *point {
	if p, ok := (*t.points.Load())[s]; ok {
		return p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.operation = t.operations.label(s.operation)
	points := *t.points.Load()
	if p, ok := points[s]; ok {
		return p
	}
	outcome := keyOutcome.String(string(s.outcome))
	p := &point{
		series: s,
		add:    []metric.AddOption{metric.WithAttributeSet(t.attributes(keyOperation.String(s.operation), outcome))},
		record: []metric.RecordOption{metric.WithAttributeSet(t.attributes(outcome))},
	}
	more := make(map[series]*point, len(points)+1)
	for known, other := range points {
		more[known] = other
	}
	more[s] = p
	t.points.Store(&more)
	return p
}

// attributes returns the common attributes and others.
func (t *Telemetry) attributes(others ...attribute.KeyValue) attribute.Set {
	return attribute.NewSet(slices.Concat(t.cfg.Attributes, others)...)
}

// with returns the common attributes and one more.
func (t *Telemetry) with(a attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(t.attributes(a))
}

// longestOperation is how many bytes an operation in an attribute may have.
const longestOperation = 128

// operations limits the values of onlyonce.operation.
type operations struct {
	most  int
	names map[string]bool
}

// label returns the value for an operation.
func (o *operations) label(name string) string {
	switch {
	case o.names[name]:
		return name
	case name == Other, len(name) > longestOperation, !utf8.ValidString(name), len(o.names) == o.most:
		return Other
	}
	name = strings.Clone(name) // it may be part of a request
	o.names[name] = true
	return name
}
