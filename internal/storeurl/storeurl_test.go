package storeurl

import (
	"strings"
	"testing"
)

func TestStoreURL_AServersURLReachesItsDriverAndIsShownWithoutItsPassword(t *testing.T) {
	for raw, want := range map[string]URL{
		"postgres://ada:s3cret@db:5433/shop?sslmode=disable&password=s3cret": {Engine: "postgres", server: "postgres://ada:xxxxx@db:5433/shop", Source: "postgres://ada:s3cret@db:5433/shop?sslmode=disable&password=s3cret"},
		"mysql://ada:s3cret@db/shop":                                         {Engine: "mysql", server: "mysql://ada:xxxxx@db/shop", Source: "ada:s3cret@tcp(db:3306)/shop"},
		"redis://ada:s3cret@db/0?sentinel_password=s3cret&master_set=m":      {Engine: "redis", server: "redis://ada:xxxxx@db:26379", Source: "redis://ada:s3cret@db/0?sentinel_password=s3cret&master_set=m"},
		"rediss://:s3cret@a:1,b/?prefix=shop":                                {Engine: "redis", server: "rediss://:xxxxx@a:1,b:6379", Source: "rediss://:s3cret@a:1,b/?prefix=shop"},
		"nats://ada:s3cret@a:1,b/shop?system_password=s3cret&system_user=s":  {Engine: "nats", server: "nats://ada:xxxxx@a:1,b:4222/shop", Source: "nats://ada:s3cret@a:1,b/shop?system_password=s3cret&system_user=s"},
		"etcd://ada:s3cret@a:1,b/eu/shop?members=3":                          {Engine: "etcd", server: "etcd://ada:xxxxx@a:1,b:2379/eu/shop", Source: "etcd://ada:s3cret@a:1,b/eu/shop?members=3"},
		"dynamodb://eu-west-1/shop?endpoint=http://h":                        {Engine: "dynamodb", server: "dynamodb://eu-west-1/shop", Source: "dynamodb://eu-west-1/shop?endpoint=http://h"},
		"dynamodb://eu-west-1":                                               {Engine: "dynamodb", server: "dynamodb://eu-west-1", Source: "dynamodb://eu-west-1"},
		"etcds://db":                                                         {Engine: "etcd", server: "etcds://db:2379", Source: "etcds://db"},
		"tls://s3cret@db":                                                    {Engine: "nats", server: "tls://xxxxx@db:4222", Source: "tls://s3cret@db"},
		"nats://ada:@db":                                                     {Engine: "nats", server: "nats://ada:@db:4222", Source: "nats://ada:@db"},
		"redis://ada@db/3":                                                   {Engine: "redis", server: "redis://ada@db:6379/3", Source: "redis://ada@db/3"},
		"mariadb://ada:s%40cret@[::1]:3307/shop?charset=latin1":              {Engine: "mysql", server: "mariadb://ada:xxxxx@[::1]:3307/shop", Source: "ada:s@cret@tcp([::1]:3307)/shop?charset=latin1"},
	} {
		got, err := Parse(raw)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
		if shown := got.String(); strings.Contains(shown, "cret") {
			t.Errorf("%s is shown", shown)
		}
	}
}

func TestStoreURL_AStoreURLThatIsNotRightIsRejectedWithoutItsPassword(t *testing.T) {
	for _, raw := range []string{"postgres:s3cret", "postgres://u:s3cret@/d", "postgres://u:s3cret@h", "postgres://u:s3cret@h:99999/d", "mysql://u:s3cret@h:0/d", "mysql://u:s3cret@h/", "mysql://u:s3cret@h:port/d", "mysql://u:s3cret@h/d?timeout=s3cret", "postgres://u:/s3cret#a@h/d", "postgres://u:a@s3cret@h/d", "mysql://u:1/s3cret#@h/d", "postgres://u:1/s3cret?a@h/d", "mysql://u:1/s3cret@h/d", "redis://u:s3cret@h/db", "redis://u:s3cret@", "redis:s3cret", "rediss://u:s3cret@h?tls=off", "nats://s3cret@", "dynamodb://u:s3cret@eu-west-1/shop", "dynamodb://eu-west-1/shop/s3cret", "nats:s3cret", "tls://u:s3cret@h/a.b", "etcd://s3cret@h", "etcd:s3cret", "etcds://u:s3cret@h/a/"} {
		u, err := Parse(raw)
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "store URL") && !strings.Contains(err.Error(), "stores of the scheme") {
			t.Errorf("%s: %+v, %v", raw, u, err)
		}
	}
}
