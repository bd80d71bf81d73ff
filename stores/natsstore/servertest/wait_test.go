package servertest

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// The first wait ends when its process is subscribed, because it may have missed the
// end of the command before. Later ones end because it was published.
func TestWait_AWaiterThatIsSubscribedHearsOfTheEnd(t *testing.T) {
	_, _, s := migrated(t)
	unknown := onlyonce.Settlement{State: onlyonce.StateUnknown}
	doubtful, err := s.Claim(t.Context(), claimOf("doubtful"))
	if err == nil {
		err = s.Settle(t.Context(), holdOf(doubtful), unknown)
	}
	if err != nil {
		t.Fatal(err)
	}
	for key, end := range map[string]func() error{
		"settled": func() error {
			r, err := s.Claim(t.Context(), claimOf("settled"))
			if err != nil {
				return err
			}
			return s.Settle(t.Context(), holdOf(r), onlyonce.Settlement{})
		},
		"doubtful": func() error {
			r, err := s.Lookup(t.Context(), doubtful.ID)
			if err != nil {
				return err
			}
			return s.Resolve(t.Context(), r, unknown)
		},
	} {
		for range 2 {
			woken := make(chan error, 1)
			go func() { woken <- s.Wait(t.Context(), claimOf(key).ID) }()
			for waiting := true; waiting; {
				if err := end(); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-woken:
					if err != nil {
						t.Fatal(err)
					}
					waiting = false
				default:
				}
			}
		}
	}
}
