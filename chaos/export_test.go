package chaos

import "skerry/fleet"

// ParseRefusal is for the fuzz test of what is read of logs.
var ParseRefusal = parseRefusal

// Shorter is for the test of what a storm makes of drawn faults.
var Shorter = shorter

// StormJobs are all jobs of a storm, as they are registered first.
func StormJobs(hubs, edges int) (jobs []*fleet.Job) {
	s := &storm{stage: &stage{starts: "starts"}, Forecast: Forecast{Hubs: hubs, Edges: edges}}
	s.work = newWork(s)
	for _, u := range s.work.jobs {
		jobs = append(jobs, s.work.spec(u))
	}
	return jobs
}
