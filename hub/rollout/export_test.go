package rollout

import (
	"fmt"
	"maps"
	"slices"

	"skerry/fleet"
	"skerry/hub/state"
)

// Update brings a Progress to a view.
func (p *Progress) Update(view *state.View, id fleet.DeploymentID) *Progress {
	return p.countChanges(view, id)
}

// EndOfPause is for the test of the pauses between evaluations.
var EndOfPause = endOfPause

// String says what is counted; counts of groups without anything are left out.
func (p *Progress) String() string {
	out := fmt.Sprint("bad ", ids(p.failedAllocs))
	for _, name := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[name]
		if g.healthy+len(g.canaries)+len(g.unhealthy) == 0 {
			continue
		}
		out += fmt.Sprintf("; %s: %d healthy, %d healthy canaries, canaries %v, unhealthy %v", name, g.healthy, g.healthyCanaries, ids(g.canaries), ids(g.unhealthy))
	}
	return out
}

func ids(set map[fleet.AllocID]*fleet.Alloc) []fleet.AllocID { return slices.Sorted(maps.Keys(set)) }
