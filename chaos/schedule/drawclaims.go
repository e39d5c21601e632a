package schedule

import (
	"math/rand/v2"
	"time"

	"skerry/fleet"
)

// claimStream separates the random numbers of addResourceClaims from the others, as windowStream does.
const claimStream = 0x9c1a

// Static ports of drawn jobs: few, so that jobs compete for them.
const firstStaticPort, staticPorts = 8080, 3

// addResourceClaims gives some jobs ports, cores or devices, and some batch jobs a
// max_run_duration.
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
			continue // so large a job with claims would not fit after a loss of edges
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

// edgesOf returns the number of edges in a pool, or of all edges for fleet.AllPools.
func (d *drawer) edgesOf(pool string) int {
	n := 0
	for _, e := range d.s.Topology.Edges {
		if pool == fleet.AllPools || e.Pool == pool {
			n++
		}
	}
	return n
}

// drawMaxRunDuration gives half of the batch jobs a max_run_duration, which may be shorter or
// longer than their tasks run.
func (d *drawer) drawMaxRunDuration(j *Job) {
	if d.drawBool(50) {
		j.MaxRun = d.drawDuration(j.Task.RunFor/2+5*time.Second, 2*j.Task.RunFor+10*time.Second)
	}
}

// addSlowShutdowns makes tasks with stop_on_client_after ignore their signal until a long
// kill_timeout is over, so that their replacements have to wait.
func (d *drawer) addSlowShutdowns() {
	for i := range d.s.Jobs {
		j := &d.s.Jobs[i]
		if j.HCL == "" && j.Disconnect != nil && j.Disconnect.StopOnClientAfter != nil && d.drawBool(60) {
			j.KillTimeout = d.drawDuration(20*time.Second, 3*time.Minute)
			j.Task.IgnoreSignals = true
		}
	}
}
