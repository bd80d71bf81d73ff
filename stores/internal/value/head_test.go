package value

import (
	"testing"
)

type fields struct {
	state  byte
	flags  [2]bool
	owner  string
	longs  [2]int64
	shorts [2]int32
}

func (f *fields) head() Head {
	return Head{
		State: &f.state, Flags: []*bool{&f.flags[0], &f.flags[1]}, Owner: &f.owner,
		Longs: []*int64{&f.longs[0], &f.longs[1]}, Shorts: []*int32{&f.shorts[0], &f.shorts[1]},
	}
}

func TestHead_ParseReadsWhatAppendWrote(t *testing.T) {
	const written = "1C20123456789abcdef\xff\xff\xff\xff\xff\xff\xff\xfe\x00\x00\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff"
	was := fields{Completed, [2]bool{false, true}, "0123456789abcdef", [2]int64{-2, 1 << 32}, [2]int32{1<<31 - 1, -1}}
	data := was.head().Append(nil)
	if string(data) != written {
		t.Errorf("written: %q, want %q", data, written)
	}
	var is fields
	if !is.head().Parse(append(data, "more"...)) || is != was {
		t.Errorf("read: %+v, want %+v", is, was)
	}
}

func TestHead_NothingIsReadFromAnotherVersionOrWhatIsCutOff(t *testing.T) {
	data := (&fields{Completed, [2]bool{true}, "0123456789abcdef", [2]int64{1, 2}, [2]int32{3, 4}}).head().Append(nil)
	for n := range data {
		var is fields
		if is.head().Parse(data[:n]) || is != (fields{}) {
			t.Errorf("of %d bytes, this was read: %+v", n, is)
		}
	}
	data[0]++
	var is fields
	if is.head().Parse(data) || is != (fields{}) {
		t.Errorf("of another version, this was read: %+v", is)
	}
}
