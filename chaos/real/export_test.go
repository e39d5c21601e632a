package real

import (
	"context"
	"time"

	"skerry/chaos/schedule"
	"skerry/fleet"
)

// Judge is for the test of the limits of reboots.
func (r RebootResult) Judge() error { return judgeFigures(r.listFigures()) }

// ParseRefusal is for the fuzz test of the lines of logs.
var ParseRefusal = parseRefusal

// EndOfPlacement is for the test of what counts as placed.
var EndOfPlacement = endOfPlacement

// Shorter is for the test of the faults that a storm draws.
var Shorter = shorter

// Figure and InMiB are for the test of the judgement of figures.
type Figure = figure

var InMiB = inMiB

// ReportFigures prints, writes and judges figures, as Run does.
func (f Footprint) ReportFigures(all []Figure) error {
	return f.reportFigures(f.newTable("what", "MiB", "at most"), all)
}

// Stalls is for the test of the stalls that a storm reports of its machine.
type Stalls = stalls

func (s *stalls) Watch(ctx context.Context) { s.watchForStalls(ctx) }
func (s *stalls) Saw(late time.Duration)    { s.recordStall(late) }
func (s *stalls) Take() time.Duration       { return s.takeLongestStall() }

// Stalled is for the same test.
var Stalled = stalled

// CampaignWork is a schedule with the jobs and steps of a campaign, as they are drawn.
func CampaignWork(seed uint64, containers ...string) schedule.Schedule {
	plan := schedule.Schedule{Seed: seed, Length: time.Minute, Topology: schedule.NewTopology(3, 5)}
	addWork(&plan, time.Second, containers)
	return plan
}

// CampaignJobs are all jobs of a storm, as they are registered first.
func CampaignJobs(hubs, edges int, containers ...string) (jobs []*fleet.Job) {
	s := &campaignRun{fleetRun: &fleetRun{starts: "starts"}, CampaignConfig: CampaignConfig{Hubs: hubs, Edges: edges}}
	drawn := campaignJobs(edges)
	drawDrivers(1, drawn, containers)
	for _, j := range drawn {
		spec, err := j.Spec()
		if err != nil {
			panic(err)
		}
		s.adaptJob(spec, j.Driver)
		jobs = append(jobs, spec)
	}
	return jobs
}
