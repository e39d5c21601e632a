package real_test

import (
	"bytes"
	"strings"
	"testing"

	"skerry/chaos/faultnet"
	"skerry/chaos/real"
)

// TestPlacement places a large job, and checks the printed summary.
func TestPlacement(t *testing.T) {
	t.Parallel()
	g, _ := mustGround(t)
	var said bytes.Buffer
	g.Net, g.Out = faultnet.NewPlain(), &said
	p := real.Placement{Ground: g, Hubs: 1, Edges: 10, CPU: 2000, Count: 150}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"edges joined together, all ready", "150 allocations placed", "all seen running by the hubs", "the fullest has 20"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
	p.Count = 201
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "have room for 200") {
		t.Errorf("more than fits: %v", err)
	}
}
