package check_test

import (
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// Hubs that have applied the same entries have the same state at the end, also if the last entries did not tell their
// state.
func TestHubsHoldTheSameAtTheEnd(t *testing.T) {
	type hub struct {
		index fleet.Index
		state string
	}
	for _, c := range []struct {
		name   string
		second hub
		broken uint64
	}{
		{"the same", hub{40, "one"}, 0},
		{"another state after the same entry", hub{40, "another"}, 1},
		{"another state after another entry", hub{39, "another"}, 0},
		{"nobody looked", hub{40, ""}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sound()
			p.Hubs[0].Index, p.Hubs[0].State = 40, "one"
			p.Hubs[1].Index, p.Hubs[1].State = c.second.index, c.second.state
			m := check.NewMonitor(check.Limits{})
			m.Finish(time.Hour, p)
			for _, v := range m.Verdicts() {
				if want := c.broken; v.Invariant == check.SameEverywhere && v.Broken != want || v.Invariant != check.SameEverywhere && v.Broken > 0 {
					t.Errorf("%s was broken %d times: %v", v.Invariant, v.Broken, m.Violations())
				}
			}
		})
	}
}
