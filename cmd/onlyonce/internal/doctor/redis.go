package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// diagnoseRedis opens a store without the risks that its URL accepts.
func diagnoseRedis(ctx context.Context, u storeurl.URL) (_ []onlyonce.Finding, summary string, err error) {
	client, cfg, err := u.DialRedis(ctx)
	if err != nil {
		if findings := rejections(err); len(findings) > 0 {
			return findings, "", nil
		}
		return nil, "", err
	}
	defer client.Close()
	cfg.AcceptRisks = nil
	store, err := redisstore.Open(ctx, client, cfg)
	if err != nil {
		if findings := rejections(err); len(findings) > 0 {
			return findings, "", nil
		}
		return nil, "", fmt.Errorf("%v: %w", u, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	about, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return nil, "", fmt.Errorf("%v: %w", u, err)
	}
	return nil, serverName(about) + "\n" + classRedis, nil
}

// The lines of INFO with a server's version. Valkey also reports a compatible version
// of Redis.
var (
	redisVersion  = regexp.MustCompile(`(?m)^redis_version:(\S+)`)
	valkeyVersion = regexp.MustCompile(`(?m)^valkey_version:(\S+)`)
)

func serverName(about string) string {
	if m := valkeyVersion.FindStringSubmatch(about); m != nil {
		return "Valkey " + m[1]
	}
	if m := redisVersion.FindStringSubmatch(about); m != nil {
		return "Redis " + m[1]
	}
	return "Redis"
}

const classRedis = `guarantee class C: responses that were sent survive a crash of the process and of
the server; a crash of the machine loses up to two seconds with appendfsync everysec,
and a failover loses what the replica had not received`
