package cryptstore

import (
	"encoding/binary"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// Values of other lengths are stored as they are: a shorter value seldom shrinks, and
	// the upper limit is how much memory a value may take when it is decompressed.
	leastCompressed = 128
	mostCompressed  = 64 << 20
)

var (
	compressor = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
			zstd.WithSingleSegment(true), zstd.WithLowerEncoderMem(true), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)))
		if err != nil {
			panic(err) // the options are constant
		}
		return e
	})
	decompressor = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(mostCompressed))
		if err != nil {
			panic(err) // the options are constant
		}
		return d
	})
)

// compress returns the length of plain and a frame of zstd, or false if that is not shorter.
func compress(plain []byte) ([]byte, bool) {
	if len(plain) < leastCompressed || len(plain) > mostCompressed {
		return nil, false
	}
	b := binary.AppendUvarint(make([]byte, 0, len(plain)), uint64(len(plain)))
	b = compressor().EncodeAll(plain, b)
	return b, len(b) < len(plain)
}

// decompress undoes compress. It allocates no more than compress accepts, whatever the
// frame expands to.
func decompress(b []byte) ([]byte, error) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > mostCompressed {
		return nil, errExpanded
	}
	plain, err := decompressor().DecodeAll(b[n:], make([]byte, 0, length))
	if err != nil || uint64(len(plain)) != length {
		return nil, errExpanded
	}
	return plain, nil
}
