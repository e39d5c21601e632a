package virtual_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// TestHistoryHasChecksOfAnAbsence: a check fails for an hour while its edge has no link. Once the link is back, the history
// of the node says when the check failed, when it passed again, and why it failed.
func TestHistoryHasChecksOfAnAbsence(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1"}, Seed: 1, BackoffCap: 10 * time.Second}
		for i := range 2 {
			cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{
				Name: fmt.Sprint("edge-", i+1), Datacenter: "dc1", Attributes: map[string]string{fleet.AttributeIPAddress: fmt.Sprint("10.1.0.", i+1)},
			})
		}
		c, err := virtual.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, c)
		mustCome(t, c, 5*time.Minute, "the edges are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 2 })
		till := service("till", 1)
		till.TaskGroups[0].Constraints = []fleet.Constraint{{LTarget: "${node.unique.name}", RTarget: "edge-1", Operand: "="}}
		till.TaskGroups[0].Services = []fleet.Service{{Name: "till", Provider: fleet.ProviderNomad, PortLabel: "1", Address: "10.1.0.2", Checks: []fleet.ServiceCheck{
			{Name: "up", Type: fleet.CheckTCP, Interval: 10 * time.Second, Timeout: 2 * time.Second},
		}}}
		validate.FillDefaults(till)
		mustRun(t, c, till)
		time.Sleep(time.Minute)

		cut := c.Net.Cut(fabric.Hosts("hub-1"), fabric.Everyone, fabric.Both, fabric.Silent)
		time.Sleep(time.Hour)
		failed := time.Now()
		checked := c.Edge("edge-2") // the check asks its address
		if err := checked.PowerCut(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		back := time.Now()
		if err := checked.Boot(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		cut.Heal()
		mustCome(t, c, 10*time.Minute, "the nodes are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 2 })

		var entries []fleet.HistoryEntry
		mustDo(t, c, http.MethodGet, "/v1/node/"+string(c.Edge("edge-1").Agent().NodeID())+"/history?allocations=true", nil, &entries)
		var found []fleet.HistoryEntry
		for _, e := range entries {
			if e.Transition != nil && e.Transition.Kind == fleet.TransitionCheck {
				found = append(found, e)
			}
		}
		if len(found) != 2 {
			t.Fatalf("%d rows of the check, want 2: %+v", len(found), entries)
		}
		for i, want := range []struct {
			at   time.Time
			text string
		}{{failed, `check "up" of service "till" fails: no`}, {back, `check "up" of service "till" passes again: connected to 10.1.0.2:1`}} {
			late := found[i].Time.Sub(want.at)
			if !found[i].Offline || found[i].AllocID == "" || late < 0 || late > time.Minute || !strings.HasPrefix(found[i].Transition.Message, want.text) {
				t.Errorf("%s late, offline %t: %+v, want %q", late, found[i].Offline, found[i].Transition, want.text)
			}
		}
	})
}
