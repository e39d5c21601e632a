package chaos_test

import (
	"testing"
	"time"

	"skerry/chaos"
	"skerry/chaos/faultnet"
)

func TestMassRejoin(t *testing.T) {
	t.Parallel()
	g, _ := mustGround(t)
	g.Net = faultnet.NewPlain()
	r := chaos.Rejoin{
		Ground: g, Edges: 30, Allocs: 4, Transitions: 50, Seed: 1, Cap: 2 * time.Second, HubFlags: chaos.FastHub,
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
