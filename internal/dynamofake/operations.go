package dynamofake

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// A table has items by the text of their key.
type table struct {
	name, key, kind string
	billing         string
	ttl             string // the attribute; "": off
	items           map[string]item
	indexes         []index
	setup           []entry // the requests that created it and its indexes
}

// An index has the items that have its key.
type index struct {
	IndexName string
	KeySchema []struct{ AttributeName, KeyType string }
}

// operations has a function for each operation.
var operations map[string]func(s *Server, body []byte) (any, *failure)

func init() {
	operations = map[string]func(s *Server, body []byte) (any, *failure){
		"CreateTable": (*Server).createTable, "DeleteTable": (*Server).deleteTable, "DescribeTable": (*Server).describeTable, "UpdateTable": (*Server).updateTable,
		"UpdateTimeToLive": (*Server).updateTTL, "DescribeTimeToLive": (*Server).describeTTL,
		"GetItem": (*Server).getItem, "PutItem": writer("Put"), "UpdateItem": writer("Update"), "DeleteItem": writer("Delete"),
		"Scan": (*Server).scan, "Query": (*Server).query, "TransactWriteItems": (*Server).transact,
	}
}

// A request has the fields of a request that the operations use.
type request struct {
	TableName                           string
	Key, Item                           item
	ConditionExpression                 string
	KeyConditionExpression              string
	IndexName                           string
	UpdateExpression                    string
	FilterExpression                    string
	ProjectionExpression                string
	ExpressionAttributeNames            map[string]string
	ExpressionAttributeValues           map[string]value
	ReturnValuesOnConditionCheckFailure string
	ReturnValues                        string
	ExclusiveStartKey                   item
	Limit                               int
	KeySchema                           []struct{ AttributeName, KeyType string }
	AttributeDefinitions                []struct{ AttributeName, AttributeType string }
	GlobalSecondaryIndexes              []index
	GlobalSecondaryIndexUpdates         []struct{ Create *index }
	BillingMode                         string
	TimeToLiveSpecification             struct {
		AttributeName string
		Enabled       bool
	}
	TransactItems []map[string]json.RawMessage
}

func read(body []byte) (*request, *failure) {
	r := new(request)
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fail("SerializationException", err.Error())
	}
	return r, nil
}

// on reads a request for a table.
func (s *Server) on(body []byte) (*request, *table, *failure) {
	r, failed := read(body)
	if failed != nil {
		return nil, nil, failed
	}
	t := s.tables[r.TableName]
	if t == nil {
		return nil, nil, fail("ResourceNotFoundException", "Requested resource not found: Table: "+r.TableName+" not found")
	}
	return r, t, nil
}

func (s *Server) createTable(body []byte) (any, *failure) {
	r, failed := read(body)
	switch {
	case failed != nil:
		return nil, failed
	case s.tables[r.TableName] != nil:
		return nil, fail("ResourceInUseException", "Table already exists: "+r.TableName)
	case len(r.KeySchema) != 1 || len(r.AttributeDefinitions) != 1+len(r.GlobalSecondaryIndexes):
		return nil, fail("ValidationException", "the fake has only tables and indexes with one key")
	}
	t := &table{
		name: r.TableName, key: r.KeySchema[0].AttributeName, billing: r.BillingMode, items: make(map[string]item),
		indexes: r.GlobalSecondaryIndexes, setup: []entry{{"CreateTable", body}},
	}
	for _, a := range r.AttributeDefinitions {
		if a.AttributeName == t.key {
			t.kind = a.AttributeType
		}
	}
	s.tables[r.TableName] = t
	return map[string]any{"TableDescription": t.describe()}, nil
}

// updateTable creates indexes of text.
func (s *Server) updateTable(body []byte) (any, *failure) {
	r, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	for _, u := range r.GlobalSecondaryIndexUpdates {
		if u.Create == nil || len(u.Create.KeySchema) != 1 {
			return nil, fail("ValidationException", "the fake only creates indexes with one key")
		}
		if t.index(u.Create.IndexName) != nil {
			return nil, fail("ValidationException", "Attempting to create an index which already exists")
		}
		t.indexes = append(t.indexes, *u.Create)
	}
	t.setup = append(t.setup, entry{"UpdateTable", body})
	return map[string]any{"TableDescription": t.describe()}, nil
}

// index returns the index of a name, or nil.
func (t *table) index(name string) *index {
	for n := range t.indexes {
		if t.indexes[n].IndexName == name {
			return &t.indexes[n]
		}
	}
	return nil
}

func (t *table) describe() map[string]any {
	attributes := []any{map[string]string{"AttributeName": t.key, "AttributeType": t.kind}}
	indexes := []any{}
	for _, in := range t.indexes {
		attributes = append(attributes, map[string]string{"AttributeName": in.KeySchema[0].AttributeName, "AttributeType": "S"})
		indexes = append(indexes, map[string]any{"IndexName": in.IndexName, "KeySchema": in.KeySchema, "IndexStatus": "ACTIVE"})
	}
	return map[string]any{
		"TableName": t.name, "TableStatus": "ACTIVE", "ItemCount": len(t.items),
		"KeySchema":            []any{map[string]string{"AttributeName": t.key, "KeyType": "HASH"}},
		"AttributeDefinitions": attributes, "GlobalSecondaryIndexes": indexes,
		"BillingModeSummary": map[string]string{"BillingMode": t.billing},
	}
}

func (s *Server) deleteTable(body []byte) (any, *failure) {
	_, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	delete(s.tables, t.name)
	return map[string]any{"TableDescription": t.describe()}, nil
}

func (s *Server) describeTable(body []byte) (any, *failure) {
	_, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	return map[string]any{"Table": t.describe()}, nil
}

func (s *Server) updateTTL(body []byte) (any, *failure) {
	r, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	t.ttl = ""
	if r.TimeToLiveSpecification.Enabled {
		t.ttl = r.TimeToLiveSpecification.AttributeName
	}
	return map[string]any{"TimeToLiveSpecification": r.TimeToLiveSpecification}, nil
}

func (s *Server) describeTTL(body []byte) (any, *failure) {
	_, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	d := map[string]string{"TimeToLiveStatus": "DISABLED"}
	if t.ttl != "" {
		d = map[string]string{"TimeToLiveStatus": "ENABLED", "AttributeName": t.ttl}
	}
	return map[string]any{"TimeToLiveDescription": d}, nil
}

// at returns the text of an item's key.
func (t *table) at(key item) (string, *failure) {
	v := key[t.key]
	if kind, _ := v.kind(); v == nil || kind != t.kind {
		return "", fail("ValidationException", "The provided key element does not match the schema")
	}
	if v.text() == "" {
		return "", fail("ValidationException", "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: "+t.key)
	}
	return v.text(), nil
}

func (s *Server) getItem(body []byte) (any, *failure) {
	r, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	key, failed := t.at(r.Key)
	if failed != nil {
		return nil, failed
	}
	if i := t.items[key]; i != nil {
		return map[string]any{"Item": i}, nil
	}
	return map[string]any{}, nil
}

// A write is a change by an operation or by an item of a transaction.
type write struct {
	*request
	table *table
	key   string
	after item // nil: it is deleted
	check bool // it changes nothing
}

// prepare reads a write. Its error is one of the request.
func (s *Server) prepare(kind string, body []byte) (*write, *failure) {
	r, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	key := r.Key
	if kind == "Put" {
		key = r.Item
	}
	w := &write{request: r, table: t, check: kind == "ConditionCheck"}
	if w.key, failed = t.at(key); failed != nil {
		return nil, failed
	}
	return w, nil
}

// check returns the reason why a write must not happen, or else the item that it writes.
func (s *Server) check(kind string, w *write) *failure {
	old := w.table.items[w.key]
	met, failed := meets(old, w.ConditionExpression, w.ExpressionAttributeNames, w.ExpressionAttributeValues)
	if failed != nil {
		return failed
	}
	if !met {
		f := fail("ConditionalCheckFailedException", "The conditional request failed")
		if w.ReturnValuesOnConditionCheckFailure == "ALL_OLD" && old != nil {
			s.OldItems.Add(1)
			f.Item = old
		}
		return f
	}
	switch kind {
	case "Put":
		w.after = w.Item
	case "Update":
		before := old
		if before == nil {
			before = w.Key
		}
		if w.after, failed = update(before, w.UpdateExpression, w.ExpressionAttributeNames, w.ExpressionAttributeValues); failed != nil {
			return failed
		}
	}
	if w.after.size() > mostItem {
		return fail("ValidationException", "Item size has exceeded the maximum allowed size")
	}
	return nil
}

func (w *write) apply() {
	switch {
	case w.check:
	case w.after == nil:
		delete(w.table.items, w.key)
	default:
		w.table.items[w.key] = w.after
	}
}

// writer returns the operation that makes one write.
func writer(kind string) func(s *Server, body []byte) (any, *failure) {
	return func(s *Server, body []byte) (any, *failure) {
		w, failed := s.prepare(kind, body)
		if failed == nil {
			failed = s.check(kind, w)
		}
		if failed != nil {
			return nil, failed
		}
		old := w.table.items[w.key]
		w.apply()
		switch {
		case w.ReturnValues == "ALL_OLD" && old != nil:
			return map[string]any{"Attributes": old}, nil
		case w.ReturnValues == "ALL_NEW":
			return map[string]any{"Attributes": w.after}, nil
		}
		return map[string]any{}, nil
	}
}

// transact makes all writes or none.
func (s *Server) transact(body []byte) (any, *failure) {
	r, failed := read(body)
	if failed != nil {
		return nil, failed
	}
	if n := len(r.TransactItems); n < 1 || n > mostItems {
		return nil, fail("ValidationException", fmt.Sprintf("1 validation error detected: Value at 'transactItems' failed to satisfy constraint: Member must have length less than or equal to %d", mostItems))
	}
	type place struct{ table, key string }
	seen, size := make(map[place]bool), 0
	var kinds []string
	var writes []*write
	for _, one := range r.TransactItems {
		kinds = append(kinds, slices.Collect(maps.Keys(one))...)
		if len(kinds) != len(writes)+1 {
			return nil, fail("ValidationException", "TransactItems can only contain one of Check, Put, Update or Delete")
		}
		kind := kinds[len(writes)]
		w, failed := s.prepare(kind, one[kind])
		if failed != nil {
			return nil, failed
		}
		at := place{w.table.name, w.key}
		if seen[at] {
			return nil, fail("ValidationException", "Transaction request cannot include multiple operations on one item")
		}
		seen[at] = true
		size += max(w.Item.size(), w.table.items[w.key].size())
		writes = append(writes, w)
	}
	if size > s.MostBytes {
		return nil, fail("ValidationException", "The total size of the items in the transaction exceeds the limit")
	}
	reasons, wrong := make([]reason, len(writes)), false
	for i, w := range writes {
		reasons[i].Code = "None"
		if f := s.check(kinds[i], w); f != nil {
			wrong = true
			reasons[i] = reason{Code: map[string]string{"ConditionalCheckFailedException": "ConditionalCheckFailed", "ValidationException": "ValidationError"}[f.Type], Message: f.Message, Item: f.Item}
		}
	}
	if wrong {
		return nil, canceled(reasons)
	}
	for _, w := range writes {
		w.apply()
	}
	return map[string]any{}, nil
}

func (s *Server) scan(body []byte) (any, *failure) {
	r, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	return t.page(r, func(item) (bool, *failure) { return true, nil })
}

// query reads an index. The fake's indexes are as new as their tables.
func (s *Server) query(body []byte) (any, *failure) {
	r, t, failed := s.on(body)
	if failed != nil {
		return nil, failed
	}
	in := t.index(r.IndexName)
	if in == nil {
		return nil, fail("ValidationException", "The table does not have the specified index: "+r.IndexName)
	}
	name := in.KeySchema[0].AttributeName
	r.ProjectionExpression, r.FilterExpression = t.key, ""
	return t.page(r, func(i item) (bool, *failure) {
		if i[name] == nil {
			return false, nil
		}
		return meets(i, r.KeyConditionExpression, r.ExpressionAttributeNames, r.ExpressionAttributeValues)
	})
}

// page returns the next page of the items that are read.
func (t *table) page(r *request, reads func(item) (bool, *failure)) (any, *failure) {
	from := ""
	if r.ExclusiveStartKey != nil {
		from = r.ExclusiveStartKey[t.key].text()
	}
	found, size, scanned := []item{}, 0, 0
	for _, key := range slices.Sorted(maps.Keys(t.items)) {
		if key <= from {
			continue
		}
		i := t.items[key]
		read, failed := reads(i)
		if failed != nil {
			return nil, failed
		}
		if !read {
			continue
		}
		met, failed := meets(i, r.FilterExpression, r.ExpressionAttributeNames, r.ExpressionAttributeValues)
		if failed != nil {
			return nil, failed
		}
		scanned++
		if size += i.size(); met {
			found = append(found, project(i, r))
		}
		if size >= page || scanned == r.Limit {
			return map[string]any{"Items": found, "Count": len(found), "ScannedCount": scanned, "LastEvaluatedKey": item{t.key: i[t.key]}}, nil
		}
	}
	return map[string]any{"Items": found, "Count": len(found), "ScannedCount": scanned}, nil
}

// project returns the attributes that a request wants.
func project(i item, r *request) item {
	if r.ProjectionExpression == "" {
		return i
	}
	some := item{}
	e := parse(r.ProjectionExpression, r.ExpressionAttributeNames, nil)
	for more := true; more; more = e.accept(",") {
		if name := e.name(); i[name] != nil {
			some[name] = i[name]
		}
	}
	return some
}
