package syncproto_test

import (
	"bytes"
	"io"
	"testing"

	"skerry/fleet"
	"skerry/syncproto"
)

// What is decoded is encoded to the same bytes again and again, and what is not
// gives a typed error.

func FuzzReader(f *testing.F) {
	for _, m := range samples() {
		frame, err := syncproto.AppendFrame(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Add([]byte{5, 0xff, 0xff, 0x3f})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := syncproto.NewReader(bytes.NewReader(wire))
		for {
			_, err := r.Read()
			if err == io.EOF {
				return
			}
			if err != nil {
				if code := fleet.CodeOf(err); code != fleet.CodeFrameBad && code != fleet.CodeFrameTooLarge {
					t.Fatalf("an error without a proper code: %v", err)
				}
				return
			}
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range samples() {
		f.Add(byte(m.FrameType()), mustBody(f, m))
	}
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		m, err := syncproto.DecodeMessage(syncproto.FrameType(typ), body)
		if err != nil {
			if code := fleet.CodeOf(err); code != fleet.CodeFrameBad && code != fleet.CodeFrameTooLarge {
				t.Fatalf("an error without a proper code: %v", err)
			}
			return
		}
		once := mustBody(t, m)
		again, err := syncproto.DecodeMessage(m.FrameType(), once)
		if err != nil {
			t.Fatalf("%#v\nis not decoded again: %v", m, err)
		}
		if twice := mustBody(t, again); !bytes.Equal(once, twice) {
			t.Fatalf("%x\nbecomes %x", once, twice)
		}
	})
}

func FuzzDecodeRow(f *testing.F) {
	for _, tr := range rowSamples() {
		f.Add(mustEncodeRow(f, tr))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		tr, err := syncproto.DecodeRow(row)
		if err != nil {
			switch fleet.CodeOf(err) {
			case fleet.CodeFrameBad, fleet.CodeFrameTooLarge, fleet.CodeVersion:
				return
			}
			t.Fatalf("an error without a proper code: %v", err)
		}
		once := mustEncodeRow(t, tr)
		again, err := syncproto.DecodeRow(once)
		if err != nil {
			t.Fatalf("%+v\nis not decoded again: %v", tr, err)
		}
		if twice := mustEncodeRow(t, again); !bytes.Equal(once, twice) {
			t.Fatalf("%x\nbecomes %x", once, twice)
		}
	})
}

func FuzzDecodeJob(f *testing.F) {
	b, err := syncproto.EncodeJob(&fleet.Job{ID: "j", TaskGroups: []fleet.TaskGroup{{Tasks: []fleet.Task{{Config: map[string]any{"a": []any{int64(1)}}}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, body []byte) {
		j, err := syncproto.DecodeJob(body)
		if err != nil {
			if code := fleet.CodeOf(err); code != fleet.CodeFrameBad {
				t.Fatalf("an error without a proper code: %v", err)
			}
			return
		}
		if _, err := syncproto.EncodeJob(j); err != nil {
			t.Fatalf("%+v is not encoded again: %v", j, err)
		}
	})
}
