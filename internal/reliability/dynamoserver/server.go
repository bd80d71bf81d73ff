//go:build linux

// Package dynamoserver runs the fake of DynamoDB as a process of its own, which may be killed.
package dynamoserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce/internal/dynamofake"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
)

// A Server is the fake in a process of its own, with a journal. Confirmed changes survive a
// kill.
type Server struct {
	Port  string
	dir   string
	child *faults.Child
}

// variable is the environment variable that makes the program a server.
const variable = "ONLYONCE_DYNAMOSERVER"

// patience is how long a server may take to respond.
const patience = time.Minute

// Start starts a server, and sets up the store.
func Start() (s *Server, err error) {
	s = &Server{}
	if s.dir, err = os.MkdirTemp("", "onlyonce"); err != nil {
		return nil, err
	}
	s.Port = testserver.FreePort()
	if err = s.Launch(); err == nil {
		err = s.migrate()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) migrate() error {
	client, cfg, err := Dial(URL(s.Address()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, err := dynamostore.Migrate(ctx, client, cfg)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// Address returns the address on which the server listens.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", s.Port) }

// Launch starts the process, and returns once it responds.
func (s *Server) Launch() (err error) {
	if s.child, err = faults.Start(variable, s.Port+" "+s.dir); err != nil {
		return err
	}
	child := s.child
	go func() {
		_, _ = io.Copy(io.Discard, child.Out) // until it has ended
		child.Wait()
	}()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.Address())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-child.Ended:
			return child.Err()
		default:
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// Kill ends the process as kill -9 does.
func (s *Server) Kill() { s.child.Kill() }

// Restart kills the process, and starts another one, which replays the journal.
func (s *Server) Restart() error {
	s.Kill()
	return s.Launch()
}

// Close ends the server, and deletes its journal.
func (s *Server) Close() error {
	if s.child != nil {
		s.Kill()
	}
	return os.RemoveAll(s.dir)
}

// Serve runs the server until its process is killed. It returns false if the program was not
// started for that. A main function calls it first.
func Serve() bool {
	var port, dir string
	if _, err := fmt.Sscanf(os.Getenv(variable), "%s %s", &port, &dir); err != nil {
		return false
	}
	fmt.Fprintln(os.Stderr, serve(port, dir))
	os.Exit(1)
	return true
}

func serve(port, dir string) error {
	s, err := dynamofake.New(filepath.Join(dir, "journal"))
	if err != nil {
		return err
	}
	s.Inject(dynamofake.Faults{Fail: fail, Lose: losesResponse, Date: date})
	return http.ListenAndServe(net.JoinHostPort("127.0.0.1", port), s)
}

// skew is the greatest difference between the Dates of two responses, as the stores are
// configured.
const skew = 20 * time.Millisecond

// fail rejects some requests as DynamoDB does. Those with an internal error may have taken
// effect, as far as the store can know.
func fail(rng *rand.Rand, operation string) string {
	switch rng.IntN(400) {
	case 0:
		return "ThrottlingException"
	case 1:
		return "InternalServerError"
	case 2:
		return "TransactionConflictException"
	}
	if operation == "TransactWriteItems" {
		switch rng.IntN(40) {
		case 0:
			return "TransactionConflict"
		case 1:
			return "ThrottlingError"
		}
	}
	return ""
}

// losesResponse loses some responses, whose requests have taken effect.
func losesResponse(rng *rand.Rand, _ string) bool { return rng.IntN(200) == 0 }

// date returns the time as one of several servers with different clocks shows it.
func date(rng *rand.Rand, at time.Time) time.Time {
	return at.Add(time.Duration(rng.Int64N(int64(skew*3/4))) - skew*3/8)
}

// URL returns the URL of the store on the server at an address.
func URL(address string) string {
	return fmt.Sprintf("dynamodb://eu-central-1/onlyonce?clock_skew=%v&endpoint=http://%s", skew, address)
}

// connections is how many idle connections a client keeps.
const connections = 64

// Dial returns a client for the URL of a store, which connects when it is used.
func Dial(raw string) (*dynamodb.Client, dynamostore.Config, error) {
	u, err := dynamostore.ParseURL(raw)
	if err != nil {
		return nil, dynamostore.Config{}, err
	}
	client := dynamodb.New(dynamodb.Options{
		Region: u.Region, BaseEndpoint: &u.Endpoint, HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	})
	return client, u.Config, nil
}
