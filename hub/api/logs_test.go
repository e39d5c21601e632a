package api_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/syncproto"
)

// TestLogFramesNameTheirFiles reads frames of an edge that names the file of each, of one that
// breaks off, and of one of an older release, which names none.
func TestLogFramesNameTheirFiles(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	alloc := &nomad.Allocation{ID: string(mustPlace(t, h, "web")), NodeID: string(nodeID)}
	read := func() (frames []nomad.StreamFrame, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, errs := c.AllocFS().Logs(alloc, true, "main", "stderr", "end", 3, ctx.Done(), nil)
		for {
			select {
			case f, more := <-got:
				if !more {
					return frames, nil
				}
				frames = append(frames, *f)
			case err := <-errs:
				return frames, err
			}
		}
	}
	h.logs = "old"
	old, err := read()
	if err != nil || len(old) != 1 || string(old[0].Data) != "old" || old[0].File != "alloc/logs/main.stderr.0" {
		t.Errorf("of an older release: %+v, %v", old, err)
	}
	var asked syncproto.Request
	var wire bytes.Buffer
	w := syncproto.NewWriter(&wire)
	for _, p := range []syncproto.LogPiece{{File: 9, Offset: 41, Data: []byte("a")}, {File: 9, Offset: 42, Data: []byte("b")}, {File: 10, Data: []byte("c")}} {
		if err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	h.pieces = func(req syncproto.Request) (io.ReadCloser, error) {
		asked = req
		return io.NopCloser(bytes.NewReader(wire.Bytes())), nil
	}
	frames, err := read()
	if err != nil || len(frames) != 3 {
		t.Fatalf("%+v, %v", frames, err)
	}
	for i, want := range []struct {
		file, data string
		offset     int64
	}{{"alloc/logs/main.stderr.9", "a", 41}, {"alloc/logs/main.stderr.9", "b", 42}, {"alloc/logs/main.stderr.10", "c", 0}} {
		if f := frames[i]; f.File != want.file || f.Offset != want.offset || string(f.Data) != want.data {
			t.Errorf("frame %d: %+v, want %+v", i, f, want)
		}
	}
	if !asked.Follow || asked.Stream != "stderr" || asked.Origin != "end" || asked.Offset != 3 || asked.Task != "main" {
		t.Errorf("asked %+v", asked)
	}
	if err := w.Write(syncproto.Reply{}); err != nil {
		t.Fatal(err)
	}
	if frames, _ := read(); len(frames) != 3 {
		t.Errorf("of an edge that sends something else: %+v", frames)
	}
	h.pieces = func(syncproto.Request) (io.ReadCloser, error) {
		return nil, fleet.Errorf(fleet.CodeUnavailable, "the edge has gone")
	}
	if frames, err := read(); len(frames) > 0 || err == nil {
		t.Errorf("of an edge that has gone: %+v, %v", frames, err)
	}
}

// TestFollowAcrossARotation follows the output of a task across a change of its file: each frame has the right file
// and offset. Then it collects the ended allocation.
func TestFollowAcrossARotation(t *testing.T) {
	c := mustDevCluster(t)
	c.registerHCL(`job "chatty" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "trap 'seq -w 180000; exit 0' USR1; echo begin; while :; do sleep 0.1; done"]
      }
      logs {
        max_files     = 5
        max_file_size = 1
      }
    }
  }
}`)
	al := c.waitForRunningAlloc("chatty")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q := (&nomad.QueryOptions{}).WithContext(ctx)
	frames, _ := c.AllocFS().Logs(al, true, "t", "stdout", "start", 0, ctx.Done(), q)
	first := <-frames
	if first == nil || string(first.Data) != "begin\n" {
		t.Fatalf("%+v", first)
	}
	c.mustSucceed(c.Allocations().Signal(al, nil, "t", "SIGUSR1"))
	said := map[string][]byte{first.File: first.Data}
	for f := range frames {
		if have := said[f.File]; f.Offset != int64(len(have)) {
			t.Fatalf("a frame at %d of %s, of which %d bytes were read", f.Offset, f.File, len(have))
		}
		said[f.File] = append(said[f.File], f.Data...)
	}
	if len(said) != 2 {
		t.Fatalf("%d files", len(said))
	}
	for file, data := range said {
		cat, err := c.AllocFS().Cat(al, file, nil)
		c.mustSucceed(err)
		if b, err := io.ReadAll(cat); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%s has %d bytes, and frames named %d: %v", file, len(b), len(data), err)
		}
		cat.Close()
	}
	c.collectEndedAllocs(al)
}

// collectEndedAllocs has edges remove one ended allocation, and then all of each node.
func (c *devCluster) collectEndedAllocs(al *nomad.Allocation) {
	c.tb.Helper()
	c.waitUntil("the ended allocation is collected", func() string {
		if err := c.Nodes().GcAlloc(al.ID, nil); err != nil {
			return err.Error() // its end is not confirmed yet
		}
		return ""
	})
	if _, _, err := c.AllocFS().List(al, "/", nil); err == nil {
		c.tb.Error("the folder of a collected allocation is there")
	}
	for _, id := range c.nodes {
		c.mustSucceed(c.Nodes().GC(string(id), nil))
	}
}
