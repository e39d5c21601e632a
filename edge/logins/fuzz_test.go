package logins

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"skerry/internal/codec"
)

// jsonServer has contents in JSON.
type jsonServer struct{ Server }

func (jsonServer) Name() string { return "Vault" }

func (jsonServer) CheckContent(c Content) error {
	if !json.Valid(c.Body) {
		return errors.New("no JSON")
	}
	return nil
}

// FuzzDecodeRecord: no bytes make it panic, and it accepts no record of another task, and no contents that cannot be read.
func FuzzDecodeRecord(f *testing.F) {
	good, err := codec.Marshal(Record{Version: 1, Alloc: "a", Task: "t", Token: "x", Lease: 3600, Contents: []Content{{Name: "read kv/a?", Body: []byte(`{"data":{}}`), Lease: 1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	k := &Keeper{cfg: Config{Server: jsonServer{}}}
	f.Fuzz(func(t *testing.T, plain []byte) {
		r, err := k.decodeRecord("vault/a/t", plain)
		if err != nil {
			return
		}
		if r.Alloc != "a" || r.Task != "t" || r.Lease < 0 || renewalPause(r.Lease) < time.Second {
			t.Fatalf("%+v", r)
		}
		for _, c := range r.Contents {
			if !json.Valid(c.Body) || LeasePause(c.Lease) < time.Second {
				t.Fatalf("%+v", c)
			}
		}
	})
}
