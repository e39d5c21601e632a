package rpc_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"runtime"
	"testing"

	"skerry/fleet"
	"skerry/hub/rpc"
)

func TestChunksCarryBytesAndTheirEnd(t *testing.T) {
	content := bytes.Repeat([]byte("skerry "), 20_000) // several chunks
	for name, failure := range map[string]*fleet.Error{
		"a good end": nil,
		"a bad end":  fleet.Errorf(fleet.CodeNotFound, "the file is gone").WithHint("look elsewhere"),
	} {
		t.Run(name, func(t *testing.T) {
			var wire bytes.Buffer
			if err := rpc.WriteChunks(&wire, content, failure); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(rpc.NewChunkReader(&wire))
			if !bytes.Equal(got, content) {
				t.Fatalf("read %d bytes of %d", len(got), len(content))
			}
			var e *fleet.Error
			if failure == nil && err != nil || failure != nil && (!errors.As(err, &e) || *e != *failure) {
				t.Fatalf("ended with %v, want %v", err, failure)
			}
		})
	}
}

func TestChunksThatAreCutOffAreNotAnEnd(t *testing.T) {
	var wire bytes.Buffer
	if err := rpc.WriteChunks(&wire, []byte("content"), nil); err != nil {
		t.Fatal(err)
	}
	for n := range wire.Len() {
		if _, err := io.ReadAll(rpc.NewChunkReader(bytes.NewReader(wire.Bytes()[:n]))); err == nil {
			t.Fatalf("%d of %d bytes were taken for the whole", n, wire.Len())
		}
	}
}

func TestBoundsOfARequest(t *testing.T) {
	if err := rpc.WriteRequest(io.Discard, "m", make([]byte, rpc.MaxBody+1)); fleet.CodeOf(err) != fleet.CodeFrameTooLarge {
		t.Fatalf("a body over the bound: %v", err)
	}
	announced := []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xa0}
	if _, _, err := rpc.ReadRequest(bytes.NewReader(announced)); fleet.CodeOf(err) != fleet.CodeFrameTooLarge {
		t.Fatalf("a body announced over the bound: %v", err)
	}
}

// TestABodyTakesLittleMoreThanItsBytes reads bodies of several sizes, and one that is cut off.
func TestABodyTakesLittleMoreThanItsBytes(t *testing.T) {
	// The least of three: other goroutines of the process allocate, too.
	readRequest := func(wire []byte) (body []byte, allocated uint64, err error) {
		allocated = math.MaxUint64
		for range 3 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, body, err = rpc.ReadRequest(bytes.NewReader(wire))
			runtime.ReadMemStats(&after)
			allocated = min(allocated, after.TotalAlloc-before.TotalAlloc)
		}
		return body, allocated, err
	}
	var wire bytes.Buffer
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 300_000, 4 << 20} {
		wire.Reset()
		sent := bytes.Repeat([]byte("skerry "), size/7+1)[:size]
		if err := rpc.WriteRequest(&wire, "m", sent); err != nil {
			t.Fatal(err)
		}
		got, allocated, err := readRequest(wire.Bytes())
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("a body of %d bytes came out as %d, %v", size, len(got), err)
		}
		if most := uint64(size)*2 + 128<<10; allocated > most {
			t.Errorf("a body of %d bytes took %d, at most %d is allowed", size, allocated, most)
		}
	}
	if _, allocated, err := readRequest(wire.Bytes()[:200<<10]); !errors.Is(err, io.ErrUnexpectedEOF) || allocated > 2<<20 {
		t.Errorf("200 KiB of a body of 4 MiB took %d bytes, and ended with %v", allocated, err)
	}
}

func FuzzReadRequest(f *testing.F) {
	var seed bytes.Buffer
	if err := rpc.WriteRequest(&seed, "hub.join", []byte("body")); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add([]byte{0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xa0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		method, body, err := rpc.ReadRequest(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(body) > len(b) {
			t.Fatalf("%d bytes out of %d", len(body), len(b))
		}
		var again bytes.Buffer
		if err := rpc.WriteRequest(&again, method, body); err != nil {
			t.Fatal(err)
		}
		m, bo, err := rpc.ReadRequest(&again)
		if err != nil || m != method || !bytes.Equal(bo, body) {
			t.Fatalf("%q, %x became %q, %x, %v", method, body, m, bo, err)
		}
	})
}

func FuzzChunkReader(f *testing.F) {
	var seed bytes.Buffer
	if err := rpc.WriteChunks(&seed, []byte("content"), fleet.Errorf(fleet.CodeNotFound, "gone")); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := io.ReadAll(rpc.NewChunkReader(bytes.NewReader(b)))
		if len(got) > len(b) {
			t.Fatalf("%d bytes out of %d, %v", len(got), len(b), err)
		}
	})
}
