package dynamostore

import (
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

// The attributes of an item.
const (
	attrKey      = "pk"
	attrHead     = "head"     // of a record
	attrRest     = "rest"     // of a record that has one and is small
	attrRevision = "revision" // of a record: a condition of every change
	attrPieces   = "pieces"   // of a large record: where its rest is
	attrData     = "data"     // of a piece
	attrTTL      = "ttl"      // when DynamoDB may delete the item
	attrLock     = "lock"     // of a transaction that runs the command
	attrOpen     = "open"     // of a record whose command runs or has an unknown outcome: a partition of the index
)

// openIndex is the name of the index that has the records with attrOpen.
const openIndex = "open"

// markKey is the key of the item without which the table has forgotten its records.
const markKey = "made"

// The beginnings of keys.
const (
	recordPrefix = "r/"
	piecePrefix  = "p/"
)

type item = map[string]types.AttributeValue

// A place is where the record of an ID is.
type place struct {
	hash [32]byte
	name string // made of the hash of the ID
}

func placeOf(id onlyonce.ID) place { return placeAt(id.Hash()) }

func placeAt(hash [32]byte) place {
	return place{hash: hash, name: base64.RawURLEncoding.EncodeToString(hash[:])}
}

// parsePlace returns the place of the record with a key. Another key is not ok.
func parsePlace(key string) (p place, ok bool) {
	if len(key) < len(recordPrefix) || key[:len(recordPrefix)] != recordPrefix {
		return p, false
	}
	hash, err := base64.RawURLEncoding.DecodeString(key[len(recordPrefix):])
	if err != nil || len(hash) != len(p.hash) {
		return p, false
	}
	p = placeAt([32]byte(hash))
	return p, p.key() == key
}

func (p place) key() string { return recordPrefix + p.name }

// keyOf returns the key of an item.
func keyOf(key string) item { return item{attrKey: text(key)} }

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func binaryOf(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// bytesOf returns an attribute of bytes, or nil if the item has none of that name.
func bytesOf(i item, name string) []byte {
	b, _ := i[name].(*types.AttributeValueMemberB)
	if b == nil {
		return nil
	}
	return b.Value
}

// textOf returns an attribute of text, or "" if the item has none of that name.
func textOf(i item, name string) string {
	s, _ := i[name].(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

// numberOf returns an attribute that is a whole number, or 0 if the item has none of that name.
func numberOf(i item, name string) int64 {
	a, _ := i[name].(*types.AttributeValueMemberN)
	if a == nil {
		return 0
	}
	n, _ := strconv.ParseInt(a.Value, 10, 64)
	return n
}

// expiring adds to an item when DynamoDB may delete it; 0: never.
func expiring(i item, at int64) item {
	if at > 0 {
		i[attrTTL] = number(at)
	}
	return i
}

// pieces are the items in which the rest of a large record is.
type pieces struct {
	id      string // random, base64
	count   int
	size    int
	deleted int64 // the second after which DynamoDB may delete them; 0: never
}

func (p *pieces) String() string { return fmt.Sprintf("%s %d %d %d", p.id, p.count, p.size, p.deleted) }

// parsePieces reads where the rest of a record is; nil and not ok: it is nowhere.
func parsePieces(s string) (p *pieces, ok bool) {
	p = new(pieces)
	n, err := fmt.Sscanf(s, "%s %d %d %d", &p.id, &p.count, &p.size, &p.deleted)
	if err != nil || n != 4 || p.size < 0 || p.size > longestRest || p.count != (p.size+pieceSize-1)/pieceSize || p.String() != s {
		return nil, false
	}
	return p, true
}

// key returns the key of the nth piece of a record's rest.
func (p *pieces) key(of place, n int) string {
	return piecePrefix + of.name + "/" + p.id + "/" + strconv.Itoa(n)
}
