package importfile

import (
	"io"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestLines_ACSVFileAndOneOfJSONMeanTheSame(t *testing.T) {
	files := map[string]struct {
		lines func(io.Reader) iter.Seq[Line]
		text  string
	}{
		"CSV": {CSVLines, "tenant,operation,key,fingerprint,status_code,header,body,ref\n" +
			"acme,POST /orders,order-17,00ff,201,\"{\"\"Location\"\": [\"\"/orders/17\"\"]}\",\"made\r\n\"\"here\"\"\r\r\n\n\r\",17\r\nacme,,,,,,,\r\n"},
		"JSON": {JSONLines, `{"tenant":"acme","operation":"POST /orders","key":"order-17","fingerprint":"00ff","status_code":201,"header":{"Location":["/orders/17"]},"body":"made\r\n\"here\"\r\r\n\n\r","ref":"17"}` +
			"\n" + `{"tenant":"acme","operation":""}`},
	}
	var was *Entry
	for name, file := range files {
		var entries []Entry
		var mistakes []string
		for l := range file.lines(strings.NewReader(file.text)) {
			if e, err := l.Entry(Settings{Keep: time.Hour}); err != nil {
				mistakes = append(mistakes, err.Error())
			} else {
				entries = append(entries, e)
			}
		}
		if len(entries) != 1 || len(mistakes) != 1 || !strings.HasPrefix(mistakes[0], "key is missing: ") {
			t.Fatalf("%s: %+v, mistakes %q", name, entries, mistakes)
		}
		e := entries[0]
		e.Line = 0 // CSV has a heading
		if e.ID != (onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: "order-17"}) || e.Settlement.Result.Status != 201 || e.KeepAt(time.Now()) != time.Hour {
			t.Errorf("%s: %+v", name, e)
		}
		if was != nil && !reflect.DeepEqual(e, *was) {
			t.Errorf("%+v\nand %+v", e, *was)
		}
		was = &e
	}
}
