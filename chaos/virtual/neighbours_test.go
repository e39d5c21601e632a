package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// neighbourTest is two edges of one site and one of another. The first one has the service till, whose address is that of its
// agent; the second one has a task with a template that reads it.
type neighbourTest struct {
	*testing.T
	c    *virtual.Cluster
	file string // what the template renders
}

// want lets time pass, and checks what edge-2 knows of the service and what its template says.
func (w *neighbourTest) want(when string, found bool, suits func(local.Service) bool) {
	w.Helper()
	time.Sleep(3 * time.Minute)
	ctx := context.Background()
	all, err := w.c.Edge("edge-2").Agent().Agent().Services(ctx, "", "till")
	if err != nil || len(all) > 1 || len(all) == 1 && !suits(all[0]) {
		w.Errorf("%s: edge-2 shows %+v, %v", when, all, err)
	}
	live, err := w.c.Edge("edge-2").Agent().Services(ctx, fleet.DefaultNamespace, "till")
	if err != nil || found != (len(live) == 1) {
		w.Errorf("%s: edge-2 has %+v, %v", when, live, err)
	}
	want := ""
	if found {
		want = "10.1.0.1:1"
	}
	if b, err := os.ReadFile(w.file); string(b) != want {
		w.Errorf("%s: the template says %q, want %q: %v", when, b, want, err)
	}
	if other, err := w.c.Edge("edge-3").Agent().Services(ctx, "", "till"); err != nil || len(other) > 0 {
		w.Errorf("%s: an edge of another site has %+v, %v", when, other, err)
	}
}

// registerJobs registers the service and the task that reads it, and waits until both run.
func (w *neighbourTest) registerJobs() {
	w.Helper()
	on := func(node string) []fleet.Constraint {
		return []fleet.Constraint{{LTarget: "${node.unique.name}", RTarget: node, Operand: "="}}
	}
	till, screen := service("till", 1), service("screen", 1)
	till.TaskGroups[0].Constraints, screen.TaskGroups[0].Constraints = on("edge-1"), on("edge-2")
	till.TaskGroups[0].Services = []fleet.Service{{Name: "till", Provider: fleet.ProviderNomad, PortLabel: "1", Checks: []fleet.ServiceCheck{
		{Name: "up", Type: fleet.CheckTCP, Interval: 10 * time.Second, Timeout: 2 * time.Second},
	}}}
	screen.TaskGroups[0].Tasks[0].Templates = []fleet.Template{{
		EmbeddedTmpl: `{{ range nomadService "till" }}{{ .Address }}:{{ .Port }}{{ end }}`, DestPath: "local/till", ChangeMode: fleet.ChangeNoop,
	}}
	for _, job := range []*fleet.Job{till, screen} {
		validate.FillDefaults(job)
		mustRun(w.T, w.c, job)
	}
	for a := range lead(w.T, w.c).State().View().AllocsByJob(fleet.DefaultNamespace, "screen") {
		w.file = filepath.Join(w.c.Edge("edge-2").Dir, "allocs", string(a.ID), "t", "local", "till")
	}
}

// TestNeighboursWithoutHubs: with the hubs gone, an edge that reboots has the service of its neighbour again, also in a
// template. The service disappears when the neighbour dies, and is back with it. With the link back the hub's copy counts.
func TestNeighboursWithoutHubs(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1"}, Seed: 1, BackoffCap: 10 * time.Second}
		for i, site := range []string{"shop-17", "shop-17", "shop-18"} {
			cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{
				Name: fmt.Sprint("edge-", i+1), Datacenter: "dc1", Site: site, Attributes: map[string]string{fleet.AttributeIPAddress: fmt.Sprint("10.1.0.", i+1)},
			})
		}
		c, err := virtual.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, c)
		mustCome(t, c, 5*time.Minute, "the edges are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 3 })
		w := &neighbourTest{T: t, c: c}
		w.registerJobs()
		first, second := c.Edge("edge-1"), c.Edge("edge-2")
		upToDate := func(s local.Service) bool {
			return s.Neighbour == "edge-1" && s.Critical == "" && !s.Untried && s.CopyAge == 0
		}
		answers := func(s local.Service) bool {
			return s.Neighbour == "edge-1" && s.Critical == "" && !s.Untried && s.CopyAge > 0
		}
		w.want("with a link", true, upToDate)

		cut := c.Net.Cut(fabric.Hosts("hub-1"), fabric.Everyone, fabric.Both, fabric.Silent)
		w.want("without a link", true, answers)
		if err := errors.Join(second.PowerCut(), second.Boot()); err != nil {
			t.Fatal(err)
		}
		w.want("after a reboot without a link", true, answers)
		if err := first.PowerCut(); err != nil {
			t.Fatal(err)
		}
		w.want("the neighbour is dead", false, func(s local.Service) bool {
			return s.Critical != "" && s.Since != nil && s.CopyAge > 6*time.Minute && s.CopyAge < 15*time.Minute
		})
		if err := errors.Join(second.PowerCut(), second.Boot()); err != nil {
			t.Fatal(err)
		}
		w.want("the neighbour is dead, after a reboot", false, func(s local.Service) bool { return s.Critical != "" })
		if err := first.Boot(); err != nil {
			t.Fatal(err)
		}
		w.want("the neighbour is back", true, answers)
		cut.Heal()
		mustCome(t, c, 10*time.Minute, "the nodes are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 3 })
		w.want("with a link again", true, upToDate)
		mustDo(t, c, http.MethodDelete, "/v1/job/till", nil, nil)
		w.want("the job is stopped", false, func(local.Service) bool { return false })
	})
}
