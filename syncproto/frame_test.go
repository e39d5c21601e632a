package syncproto_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"

	"skerry/fleet"
	"skerry/syncproto"
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestReaderOfSeveralFramesByteByByte(t *testing.T) {
	var wire []byte
	want := []syncproto.Message{syncproto.Probe{Number: 1}, samples()["updates"], samples()["hello"]}
	for _, m := range want {
		var err error
		if wire, err = syncproto.AppendFrame(wire, m); err != nil {
			t.Fatal(err)
		}
	}
	wire = append(wire, "and raw bytes"...)
	r := syncproto.NewReader(iotest.OneByteReader(bytes.NewReader(wire)))
	for _, w := range want {
		m, err := r.Read()
		if err != nil || m.FrameType() != w.FrameType() {
			t.Fatalf("%v, %v; want %s", m, err, w.FrameType())
		}
	}
	if rest, err := io.ReadAll(r.Rest()); err != nil || string(rest) != "and raw bytes" {
		t.Errorf("after the frames: %q, %v", rest, err)
	}
}

func TestReaderRefuses(t *testing.T) {
	tests := map[string]struct {
		wire []byte
		code fleet.Code
	}{
		"an unknown type":         {[]byte{0}, fleet.CodeFrameBad},
		"a frame of a newer kind": {[]byte{200, 1, 0xa0}, fleet.CodeFrameBad},
		"type alone":              {[]byte{11}, fleet.CodeFrameBad},
		"half a length":           {[]byte{11, 0x80}, fleet.CodeFrameBad},
		"half a body":             {[]byte{11, 3, 0xa1, 0x01}, fleet.CodeFrameBad},
		"a length in long form":   {[]byte{11, 0x83, 0x00, 0xa1, 0x01, 0x03}, fleet.CodeFrameBad},
		"a length over the bound": {[]byte{11, 0x81, 0x80, 0x40}, fleet.CodeFrameTooLarge},
		"a length without end":    {bytes.Repeat([]byte{0xff}, 20), fleet.CodeFrameBad}, // 0xff is no type
		"a length of ten bytes":   {append([]byte{11}, bytes.Repeat([]byte{0xff}, 20)...), fleet.CodeFrameTooLarge},
	}
	for name, tt := range tests {
		_, err := syncproto.NewReader(bytes.NewReader(tt.wire)).Read()
		if code := fleet.CodeOf(err); code != tt.code {
			t.Errorf("%s: %v (code %q), want %q", name, err, code, tt.code)
		}
	}
	if _, err := syncproto.NewReader(bytes.NewReader(nil)).Read(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want io.EOF", err)
	}
	broken := errors.New("cable cut")
	if _, err := syncproto.NewReader(io.MultiReader(bytes.NewReader([]byte{11, 3}), iotest.ErrReader(broken))).Read(); !errors.Is(err, broken) {
		t.Errorf("a stream that fails: %v, want its error", err)
	}
}

func TestLargestFrame(t *testing.T) {
	m := syncproto.Desired{Bodies: []syncproto.Body{{Job: make([]byte, syncproto.MaxFrame-64)}}}
	wire, err := syncproto.AppendFrame(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	back, err := syncproto.NewReader(bytes.NewReader(wire)).Read()
	if err != nil || len(back.(syncproto.Desired).Bodies[0].Job) != syncproto.MaxFrame-64 {
		t.Errorf("%v", err)
	}
}

// A frame of exactly the largest size comes in, whatever it holds; one byte more does not.
func TestFrameOfTheLargestSize(t *testing.T) {
	for kind, most := range map[syncproto.FrameType]int{
		syncproto.FrameUpdates: syncproto.MaxFrame, syncproto.FrameHeartbeat: syncproto.MaxHeartbeat,
	} {
		for size, code := range map[int]fleet.Code{most: "", most + 1: fleet.CodeFrameTooLarge} {
			wire := binary.AppendUvarint([]byte{byte(kind)}, uint64(size))
			f, err := syncproto.NewReader(bytes.NewReader(append(wire, make([]byte, size)...))).Next()
			if fleet.CodeOf(err) != code || code == "" && len(f.Body) != size {
				t.Errorf("%s of %d bytes: %d came, %v", kind, size, len(f.Body), err)
			}
		}
	}
}

// A length that is announced costs nothing: memory follows what has arrived.
func TestAnnouncedLengthCostsNothing(t *testing.T) {
	const readers = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range readers {
		wire := bytes.NewReader([]byte{byte(syncproto.FrameDesired), 0xff, 0xff, 0x3f, 0xa0})
		if _, err := syncproto.NewReader(wire).Read(); fleet.CodeOf(err) != fleet.CodeFrameBad {
			t.Fatalf("%v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / readers; each > 32<<10 {
		t.Errorf("%d bytes for a frame of which one has come", each)
	}
}

func TestStreamNames(t *testing.T) {
	for _, s := range []syncproto.Stream{syncproto.StreamControl, syncproto.StreamUpdates, syncproto.StreamDesired} {
		var wire bytes.Buffer
		if err := syncproto.WriteStream(&wire, s); err != nil {
			t.Fatal(err)
		}
		if back, err := syncproto.ReadStream(&wire); err != nil || back != s {
			t.Errorf("%s came back as %s, %v", s, back, err)
		}
	}
	if _, err := syncproto.ReadStream(bytes.NewReader([]byte{3})); fleet.CodeOf(err) != fleet.CodeFrameBad {
		t.Errorf("a stream of another name: %v", err)
	}
	if _, err := syncproto.ReadStream(bytes.NewReader(nil)); !errors.Is(err, io.EOF) {
		t.Errorf("a stream without a name: %v", err)
	}
}
