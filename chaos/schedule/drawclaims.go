package schedule

import (
	"math/rand/v2"
	"time"

	"skerry/fleet"
)

// claimStream is of what jobs claim, as windowStream of windows.
const claimStream = 0x9c1a

// Ports that drawn jobs ask for by number: few, so that jobs meet.
const firstStaticPort, staticPorts = 8080, 3

// addResourceClaims has some jobs ask for ports, cores and devices, and some of their tasks end by
// another rule than that of the hub: by max_run_duration, or only when they are killed.
func (d *drawer) addResourceClaims() {
	d.rng = rand.New(rand.NewPCG(d.s.Seed, claimStream))
	for i := range d.s.Jobs {
		j := &d.s.Jobs[i]
		if j.HCL != "" {
			continue
		}
		switch {
		case j.Type == fleet.JobTypeBatch:
			d.drawMaxRunDuration(j)
		case d.drawBool(40):
			j.Ports = 1 + d.rng.IntN(2)
		}
		if j.Type != fleet.JobTypeService || j.Site != "" || 2*j.Count > d.edgesOf(j.Pool) {
			continue // with claims it would leave no room elsewhere
		}
		switch {
		case d.drawBool(15) && j.Rollout.Canary == 0 && j.Pool == fleet.AllPools:
			j.Port = firstStaticPort + i%staticPorts
		case d.drawBool(25):
			j.Cores = 1
		case d.drawBool(25):
			j.Devices = 1
		}
	}
}

// edgesOf counts the edges of a pool.
func (d *drawer) edgesOf(pool string) int {
	n := 0
	for _, e := range d.s.Topology.Edges {
		if pool == fleet.AllPools || e.Pool == pool {
			n++
		}
	}
	return n
}

// drawMaxRunDuration gives a batch job a max_run_duration: one that its tasks meet, or one that they
// do not.
func (d *drawer) drawMaxRunDuration(j *Job) {
	if d.drawBool(50) {
		j.MaxRun = d.drawDuration(j.Task.RunFor/2+5*time.Second, 2*j.Task.RunFor+10*time.Second)
	}
}

// addSlowShutdowns has tasks that have to end without a hub take long for that: whoever takes
// their place has to wait for it.
func (d *drawer) addSlowShutdowns() {
	for i := range d.s.Jobs {
		j := &d.s.Jobs[i]
		if j.HCL == "" && j.Disconnect != nil && j.Disconnect.StopOnClientAfter != nil && d.drawBool(60) {
			j.KillTimeout = d.drawDuration(20*time.Second, 3*time.Minute)
			j.Task.IgnoreSignals = true
		}
	}
}
