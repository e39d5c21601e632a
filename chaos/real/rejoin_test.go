package real_test

import (
	"testing"
	"time"

	"skerry/chaos/faultnet"
	"skerry/chaos/real"
)

func TestMassRejoin(t *testing.T) {
	t.Parallel()
	g, _ := mustGround(t)
	g.Net = faultnet.NewPlain()
	r := real.Rejoin{
		Ground: g, Edges: 30, Allocs: 4, Transitions: 50, Seed: 1, Cap: 2 * time.Second, HubFlags: real.FastHub,
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
