package edge_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"skerry/edge/local"
	"skerry/fleet"
)

// TestStoreOnSite: what is loaded over the local API is listed, stays over a restart of the agent, and goes.
func TestStoreOnSite(t *testing.T) {
	cfg := config(mustEnrolled(t), &runnerRecorder{}, io.Discard)
	cfg.StoreBytes = 1 << 20
	ctx := context.Background()
	e := mustStart(t, cfg)
	client := local.NewClient(e.Socket())
	const source = "https://example.com/a"
	entry, err := client.LoadStore(ctx, source, "", "a", strings.NewReader("content"))
	if err != nil || entry.Size != 7 || !entry.Loaded {
		t.Fatalf("%+v, %v", entry, err)
	}
	if _, err := client.LoadStore(ctx, source, "md5:"+strings.Repeat("0", 32), "a", strings.NewReader("x")); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("with a wrong checksum: %v", err)
	}
	if _, err := client.LoadStore(ctx, "large", "", "", io.LimitReader(zeros{}, 2<<20)); fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Errorf("more than fits: %v", err)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	mustStart(t, cfg)
	if s, err := client.Store(ctx); err != nil || len(s.Entries) != 1 || s.Entries[0].SHA256 != entry.SHA256 || s.Bytes != 7 || s.MaxBytes != 1<<20 {
		t.Errorf("after a restart: %+v, %v", s, err)
	}
	if r, err := client.RemoveStored(ctx, source); err != nil || r.Entries != 1 {
		t.Errorf("removed %+v, %v", r, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
