package onlyonce

import (
	"testing"
	"unsafe"
)

// Go's allocator rounds the size of an object up to the next size class, of which 768 bytes are one
// and 896 the next. An object with pointers that is larger than 512 bytes has 8 bytes more.
func TestAttempt_TakesNoMoreMemoryThanItsSizeClass(t *testing.T) {
	if size := unsafe.Sizeof(Attempt{}) + 8; size > 768 && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("an attempt takes %d bytes: each request pays for the next size class", size)
	}
}
