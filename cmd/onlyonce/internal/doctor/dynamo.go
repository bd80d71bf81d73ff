package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
)

// diagnoseDynamo opens a store without the risks that its URL accepts.
func diagnoseDynamo(ctx context.Context, u storeurl.URL) (_ []onlyonce.Finding, summary string, err error) {
	client, cfg, err := u.DialDynamo(ctx)
	if err != nil {
		return nil, "", err
	}
	cfg.AcceptRisks = nil
	store, err := dynamostore.Open(ctx, client, cfg)
	if err != nil {
		if findings := rejections(err); len(findings) > 0 {
			return findings, "", nil
		}
		return nil, "", fmt.Errorf("%v: %w", u, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return nil, "DynamoDB\n" + classDynamo, nil
}

const classDynamo = `guarantee class A, as AWS documents it: responses that were sent survive a crash of
the process and the loss of a data center of the region; tested against an emulator only`
