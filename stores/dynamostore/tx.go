package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// MostItems is how many items a Tx may have. DynamoDB takes 100 in one transaction, of which
// one is the record's.
const MostItems = 99

// A Tx has the items that a function wants to write together with the settlement of its
// command. Nothing is sent before the function has returned without an error: then all of it
// takes effect, or nothing. A Tx is safe for concurrent use.
//
// The items are of any table of the account and region but the store's own, each of them once.
// Together with the record, which takes up to 400 KB, they have at most 4 MB. DynamoDB rejects
// what exceeds that, and the command is released.
//
// If a condition of an item is not met, or DynamoDB rejects the items for another reason, the
// error of RunTx or SettleTx is a *types.TransactionCanceledException. Its CancellationReasons
// are in the order in which the items were added, and the last one is the record's.
type Tx struct {
	table string

	mu    sync.Mutex
	items []types.TransactWriteItem
	ended bool
}

// Put adds an item that is created or replaced. The error says why nothing was added: there
// are MostItems already, the table is the store's own, or the function has returned.
func (t *Tx) Put(p types.Put) error { return t.add(p.TableName, types.TransactWriteItem{Put: &p}) }

// Update adds an update of an item. Its errors are those of Put.
func (t *Tx) Update(u types.Update) error {
	return t.add(u.TableName, types.TransactWriteItem{Update: &u})
}

// Delete adds the deletion of an item. Its errors are those of Put.
func (t *Tx) Delete(d types.Delete) error {
	return t.add(d.TableName, types.TransactWriteItem{Delete: &d})
}

// Check adds a condition that an item must meet, which stays as it is. Its errors are those of
// Put.
func (t *Tx) Check(c types.ConditionCheck) error {
	return t.add(c.TableName, types.TransactWriteItem{ConditionCheck: &c})
}

func (t *Tx) add(table *string, i types.TransactWriteItem) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return errors.New("dynamostore: add an item: the function of the transaction has returned")
	case aws.ToString(table) == t.table:
		return fmt.Errorf("dynamostore: add an item: the table %s is the store's own: use another one", t.table)
	case len(t.items) == MostItems:
		return fmt.Errorf("dynamostore: add an item: the transaction has %d already, and DynamoDB takes no more", MostItems)
	}
	t.items = append(t.items, i)
	return nil
}

// end returns the items, to which none can be added any more.
func (t *Tx) end() []types.TransactWriteItem {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return t.items
}

// rejected is the error of items that DynamoDB has rejected.
type rejected struct{ error }

func (e rejected) Unwrap() error { return e.error }

// The codes of reasons for which DynamoDB cancels a transaction that may succeed later.
var (
	tooManyInTx    = map[string]bool{"ThrottlingError": true, "ProvisionedThroughputExceeded": true, "RequestLimitExceeded": true}
	inConflictInTx = map[string]bool{"TransactionConflict": true}
)

// canceled returns the error that the reasons of a canceled transaction stand for. The last reason is that of
// the record. It counts first: if the record has changed, the conditions of the other items
// may have failed because they were written before.
func (w *writer) canceled(ctx context.Context, err error, reasons []types.CancellationReason) error {
	if len(reasons) != len(w.with)+1 {
		return rejected{err}
	}
	own := reasons[len(w.with)]
	if aws.ToString(own.Code) == "ConditionalCheckFailed" {
		return w.conflict(ctx, own.Item)
	}
	slow, busy := false, false
	for _, r := range reasons {
		switch code := aws.ToString(r.Code); {
		case code == "" || code == "None":
		case tooManyInTx[code]:
			slow = true
		case inConflictInTx[code]:
			busy = true
		default:
			return rejected{err}
		}
	}
	switch {
	case slow:
		return throttled{err}
	case busy:
		return unreachable{error: err}
	}
	return rejected{err}
}
