package servertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// An authority signs the accounts and users of a server.
type authority struct {
	t        *testing.T
	operator nkeys.KeyPair
	preload  strings.Builder
}

func (a *authority) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) public(k nkeys.KeyPair) string {
	a.t.Helper()
	name, err := k.PublicKey()
	a.check(err)
	return name
}

// account adds an account, and returns its name and a file with the credentials of a user.
func (a *authority) account(jetstream bool) (name, credentials string) {
	a.t.Helper()
	account, err := nkeys.CreateAccount()
	a.check(err)
	name = a.public(account)
	claims := jwt.NewAccountClaims(name)
	if jetstream {
		claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	}
	signed, err := claims.Encode(a.operator)
	a.check(err)
	fmt.Fprintf(&a.preload, "%s: %q\n", name, signed)
	user, err := nkeys.CreateUser()
	a.check(err)
	token, err := jwt.NewUserClaims(a.public(user)).Encode(account)
	a.check(err)
	seed, err := user.Seed()
	a.check(err)
	text, err := jwt.FormatUserConfig(token, seed)
	a.check(err)
	credentials = filepath.Join(a.t.TempDir(), "user.creds")
	a.check(os.WriteFile(credentials, text, 0o600))
	return name, credentials
}

// dial opens the store that a URL names, with a connection to the system account if it names
// one.
func dial(t *testing.T, raw string) (*natsstore.Store, error) {
	t.Helper()
	u, err := natsstore.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	conn, err := u.Client.Connect()
	if err != nil {
		return nil, err
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	if u.System != nil {
		if u.Config.System, err = u.System.Connect(); err != nil {
			return nil, err
		}
		t.Cleanup(u.Config.System.Close)
	}
	if _, err := natsstore.Migrate(t.Context(), js, u.Config); err != nil {
		return nil, err
	}
	return natsstore.Open(t.Context(), js, u.Config)
}

func TestParseURL_CredentialsReachAStoreAndTheSystemAccount(t *testing.T) {
	t.Parallel()
	operator, err := nkeys.CreateOperator()
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, operator: operator}
	_, app := a.account(true)
	system, admin := a.account(false)
	signed, err := jwt.NewOperatorClaims(a.public(operator)).Encode(operator)
	a.check(err)
	server, err := natsserver.Start(fmt.Sprintf("jetstream { sync_interval: always }\noperator: %q\nsystem_account: %s\nresolver: MEMORY\nresolver_preload {\n%s}\n", signed, system, &a.preload))
	a.check(err)
	t.Cleanup(func() { a.check(server.Close()) })
	at := "nats://" + server.Address() + "/shop?"
	store, err := dial(t, at+"creds="+app+"&system_creds="+admin)
	a.check(err)
	r, err := store.Claim(t.Context(), hazard.Claim("k"))
	if err != nil || r.Fence == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	a.check(store.Close())
	for raw, want := range map[string]string{
		at + "creds=" + app:   "do not show their sync_interval",
		at + "timeout=1s":     "Authorization Violation",
		at + "creds=" + admin: "JetStream not enabled",
	} {
		if _, err := dial(t, raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}
