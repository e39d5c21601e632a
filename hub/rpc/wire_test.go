package rpc_test

import (
	"bytes"
	"errors"
	"io"
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
