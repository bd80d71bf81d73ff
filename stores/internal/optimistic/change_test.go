package optimistic

import (
	"errors"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A changing row is another one at each look.
type changing struct {
	looks []*record.Stored
	at    int
}

func (c *changing) Retry(n int) error {
	if n == len(c.looks) {
		return ErrContended
	}
	return nil
}

func (c *changing) Find(*record.Key) (*record.Stored, error) {
	c.at++
	return c.looks[c.at-1], nil
}

var (
	key  = record.KeyOf(onlyonce.ID{Key: "k"})
	hold = onlyonce.Hold{ID: key.ID, Owner: "me", Fence: 7}
)

func heldWith(steps map[string][]byte, damage error) *record.Stored {
	return &record.Stored{Damage: damage, Record: onlyonce.Record{ID: key.ID, State: onlyonce.StateProcessing, Owner: hold.Owner, Fence: hold.Fence, Steps: steps}}
}

func TestAddSteps_KeepsWhatAnotherCallAddedMeanwhile(t *testing.T) {
	on := &changing{looks: []*record.Stored{heldWith(nil, nil), heldWith(map[string][]byte{"a": []byte("1")}, nil)}}
	var wrote any
	err := AddSteps(on, &key, &hold, map[string][]byte{"b": []byte("2")}, func(seen *record.Stored, all any) (bool, error) {
		if seen != on.looks[on.at-1] {
			t.Error("the row to write over is not the one that was seen last")
		}
		wrote = all
		return on.at == 2, nil
	})
	want, encodeErr := record.EncodeSteps(map[string][]byte{"a": []byte("1"), "b": []byte("2")})
	if err != nil || encodeErr != nil || wrote != want {
		t.Errorf("wrote %v, errors %v, %v, want %v", wrote, err, encodeErr, want)
	}
}

func TestAddSteps_WritesNothingWhereItMustNot(t *testing.T) {
	damage := errors.New("it can't be read")
	other := heldWith(nil, nil)
	other.Fence++
	for name, c := range map[string]struct {
		row  *record.Stored
		want error
	}{
		"no row":              {nil, onlyonce.ErrLost},
		"another's":           {other, onlyonce.ErrLost},
		"steps it can't read": {heldWith(nil, damage), damage},
	} {
		err := AddSteps(&changing{looks: []*record.Stored{c.row}}, &key, &hold, map[string][]byte{"a": nil}, func(*record.Stored, any) (bool, error) {
			t.Errorf("%s: it was written", name)
			return true, nil
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}

func TestResolve_LooksAgainAtARowThatChanged(t *testing.T) {
	seen := onlyonce.Record{ID: key.ID, State: onlyonce.StateUnknown, Owner: hold.Owner, Fence: hold.Fence}
	row := &record.Stored{Record: seen}
	changed := &record.Stored{Record: seen}
	changed.Fence++
	never := func(*record.Stored) (bool, error) { return false, nil }
	if err := Resolve(&changing{looks: []*record.Stored{row, changed}}, &key, &seen, new(onlyonce.Settlement), never); !errors.Is(err, onlyonce.ErrLost) {
		t.Errorf("the record changed: error %v", err)
	}
	if err := Resolve(&changing{looks: []*record.Stored{row, row}}, &key, &seen, new(onlyonce.Settlement), never); !errors.Is(err, ErrContended) {
		t.Errorf("others came first every time: error %v", err)
	}
}
