package local_test

import (
	"bytes"
	"testing"

	"skerry/edge/local"
)

// FuzzExecFrames reads any bytes of a client or an agent: it gets frames within their bound, or a refusal.
func FuzzExecFrames(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x02hi"))
	f.Add([]byte("\x05\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := local.ReadExecFrames(bytes.NewReader(b))
		if err == nil || n > len(b)/5 {
			t.Errorf("%d frames of %d bytes, %v", n, len(b), err)
		}
	})
}
