package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// The names of findings.
const (
	RiskForgotten   = "forgotten"
	RiskGlobalTable = "global-table"
	RiskIndex       = "open-index"
	RiskKey         = "table-key"
	RiskTTL         = "ttl"
)

// risks can be accepted. A table with another key can't be used at all.
var risks = []string{RiskForgotten, RiskGlobalTable, RiskIndex, RiskTTL}

// Diagnose finds settings of the table that would break the promise, and whether it has
// forgotten its records.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	findings, err := s.diagnose(ctx)
	return findings, wrap("diagnose", err)
}

func (s *Store) diagnose(ctx context.Context) (findings []onlyonce.Finding, err error) {
	var t *types.TableDescription
	var wrong *onlyonce.Finding
	on, forgotten := false, false
	err = s.repeat(ctx, func(ctx context.Context) (err error) {
		if t, err = s.describe(ctx); err == nil {
			if wrong = s.judgeKey(t); wrong != nil {
				return nil
			}
			if on, err = s.expires(ctx); err == nil {
				s.mark.doubt()
				err = s.made(ctx)
			}
		}
		if forgotten = errors.Is(err, ErrForgotten); forgotten {
			err = nil
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case wrong != nil:
		return []onlyonce.Finding{*wrong}, nil
	}
	if forgotten {
		findings = append(findings, engine.NewFinding(RiskForgotten,
			fmt.Sprintf("the table %s, or the item %q that Migrate makes in it, is missing: the table is new, or it has forgotten its records, and commands that ran would run again", s.table, markKey),
			"if it is not new, find out why; then run onlyonce migrate, or call dynamostore.Migrate, once"))
	}
	if t == nil {
		return findings, nil
	}
	if len(t.Replicas) > 0 && t.MultiRegionConsistency != types.MultiRegionConsistencyStrong {
		findings = append(findings, engine.NewFinding(RiskGlobalTable,
			fmt.Sprintf("the table %s is a global table with eventual consistency: two regions that claim one command at the same time both get it", s.table),
			"use a table in one region, or a global table with strong consistency (MRSC)"))
	}
	if !hasIndex(t) {
		findings = append(findings, engine.NewFinding(RiskIndex,
			fmt.Sprintf("the table %s has no index %q: nothing counts the commands with an unknown outcome, which saves two writes per command", s.table, openIndex),
			"run onlyonce migrate, or call dynamostore.Migrate, which creates it; accept this finding if you do without the count"))
	}
	if !on {
		findings = append(findings, engine.NewFinding(RiskTTL,
			fmt.Sprintf("the time to live of the table %s is not on for the attribute %q: DynamoDB keeps every record for good", s.table, attrTTL),
			"run onlyonce migrate, or call dynamostore.Migrate, which turns it on"))
	}
	return findings, nil
}

// judgeKey returns a finding if the key of the table is another than that of records.
func (s *Store) judgeKey(t *types.TableDescription) *onlyonce.Finding {
	var keys []string
	for _, k := range t.KeySchema {
		for _, a := range t.AttributeDefinitions {
			if aws.ToString(a.AttributeName) == aws.ToString(k.AttributeName) {
				keys = append(keys, fmt.Sprintf("%s (%s, %s)", aws.ToString(k.AttributeName), k.KeyType, a.AttributeType))
			}
		}
	}
	key, want := strings.Join(keys, ", "), attrKey+" (HASH, S)"
	if key == want {
		return nil
	}
	f := engine.NewFinding(RiskKey, fmt.Sprintf("the key of the table %s is %s instead of %s", s.table, key, want), "name another table, which onlyonce migrate creates")
	return &f
}

// permitted returns an error if the client may not write records. Its request changes
// nothing, because no item meets its condition.
func (s *Store) permitted(ctx context.Context) error {
	return s.repeat(ctx, func(ctx context.Context) error {
		err := s.request(ctx, func(ctx context.Context) error {
			_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &s.table, Item: keyOf(markKey),
				ConditionExpression: aws.String("attribute_exists(" + attrKey + ") AND attribute_not_exists(" + attrKey + ")"),
			})
			return err
		})
		if errors.Is(err, errConflict) || errors.Is(err, ErrForgotten) {
			return nil
		}
		return err
	})
}
