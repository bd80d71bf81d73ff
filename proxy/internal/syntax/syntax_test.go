package syntax

import (
	"strings"
	"testing"
)

func TestSyntax_WhatALengthIs(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "007": 7, "123456789012345678": 123456789012345678,
		"": -1, "+1": -1, "-1": -1, " 1": -1, "1,1": -1, "0x1": -1, "1234567890123456789": -1, "\u0661": -1,
	} {
		if n := ParseLength(s); n != want {
			t.Errorf("ParseLength(%q) is %d, want %d", s, n, want)
		}
	}
}

func TestSyntax_WhatAListHas(t *testing.T) {
	for list, has := range map[string]bool{"close": true, "a, CLOSE\t,b": true, "": false, "closed": false, "a;close": false, "close\u00a0": false} {
		if HasToken(list, "close") != has {
			t.Errorf("HasToken(%q) is %v", list, !has)
		}
	}
}

func TestSyntax_WhatTheSizeOfAChunkIs(t *testing.T) {
	for line, want := range map[string]int64{"0": 0, "1f": 31, "FFFFFFFFFFFFFFF": 1<<60 - 1, "2;a=b": 2, "2 ;a": 2, "000000000000002": 2} {
		if n, ok := ChunkSize([]byte(line)); n != want || !ok {
			t.Errorf("ChunkSize(%q) is %d, %v", line, n, ok)
		}
	}
	for _, line := range []string{"", ";a", "-1", "+1", "0x1", "1 ", "1 2", "1g", "2;\x00", strings.Repeat("0", 16)} {
		if n, ok := ChunkSize([]byte(line)); ok {
			t.Errorf("ChunkSize(%q) is %d", line, n)
		}
	}
}
