package virtual_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
)

var seed = flag.Uint64("seed", 1, "of TestDrawn")

// TestDrawn plays a drawn schedule.
func TestDrawn(t *testing.T) {
	dir, began := t.TempDir(), time.Now()
	if d := os.Getenv("KEEP"); d != "" {
		dir = d
	}
	var o virtual.Outcome
	var err error
	s := schedule.Draw(*seed, schedule.Shape{})
	virtual.Bubble(t, func() {
		o, err = virtual.Play{Schedule: s, Dir: dir, Name: "drawn", Raft: virtual.Stretched}.Run(context.Background(), func() time.Duration { return 0 })
	})
	_ = began
	t.Log(s.String())
	for _, v := range o.Found {
		t.Errorf("%v", v)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", o.Run)
	t.Logf("%+v", o.Verdicts)
	t.Logf("%+v", o.Reached)
}
