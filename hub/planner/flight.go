package planner

import (
	"context"
	"maps"
	"sync"
	"time"

	"skerry/fleet"
)

// usage is the resources that allocations use, by node and allocation.
type usage map[fleet.NodeID]map[fleet.AllocID]allocUsage

// allocUsage is the resources that one allocation uses.
type allocUsage struct {
	resources         fleet.Resources
	assignedResources *fleet.AssignedResources
}

// lastCommit describes the recent commits of one job's plans.
type lastCommit struct {
	underway int         // number of commits in progress or in doubt
	index    fleet.Index // entry of the newest finished commit
	at       time.Time   // when that finished
}

// Bounds of lastCommits. The TTL is longer than a worker may keep a plan before it submits it.
const (
	lastCommitTTL  = 10 * time.Minute
	maxLastCommits = 1024
)

// inFlight holds the plans that are verified and not applied yet, and the resources that they will use.
type inFlight struct {
	mu          sync.Mutex
	usageByNode usage // of the new allocations in these plans
	lastCommits map[jobKey]lastCommit
	underway    int             // number of commits in progress
	idle        chan struct{}   // closed when underway becomes zero; nil: nobody waits
	doubtful    []*verifiedPlan // failed commits that may still be applied
}

// addPlan records that the commit of a plan begins, and counts the resources of its new allocations as
// used. removePlan or markDoubtful must follow.
func (f *inFlight) addPlan(v *verifiedPlan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.underway++
	if f.usageByNode == nil {
		f.usageByNode, f.lastCommits = usage{}, map[jobKey]lastCommit{}
	}
	last := f.lastCommits[v.job]
	last.underway++
	f.lastCommits[v.job] = last
	for id, list := range v.result.NodeAllocation {
		if f.usageByNode[id] == nil {
			f.usageByNode[id] = map[fleet.AllocID]allocUsage{}
		}
		for i := range list {
			f.usageByNode[id][list[i].ID] = allocUsage{list[i].AllocatedResources, list[i].Allotment}
		}
	}
}

// usageOnNodes returns a copy of the resources in flight on the nodes.
func (f *inFlight) usageOnNodes(nodes []fleet.NodeID) usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := usage{}
	for _, id := range nodes {
		if takes := f.usageByNode[id]; len(takes) > 0 {
			out[id] = maps.Clone(takes)
		}
	}
	return out
}

// lastCommitOf returns the recent commits of a job's plans; zero if none are known.
func (f *inFlight) lastCommitOf(job jobKey) lastCommit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastCommits[job]
}

// removePlan ends a commit that is applied, or surely is not: the state shows its resources from now on.
func (f *inFlight) removePlan(v *verifiedPlan, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetPlan(v, v.result.AllocIndex, now)
	f.endCommit()
}

// markDoubtful ends a commit that failed and may still be applied. Its resources count as used until
// resolveDoubtful.
func (f *inFlight) markDoubtful(v *verifiedPlan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubtful = append(f.doubtful, v)
	f.endCommit()
}

// forgetPlan drops the resources of a plan, and records the commit of its job in entry index. The caller
// holds mu.
func (f *inFlight) forgetPlan(v *verifiedPlan, index fleet.Index, now time.Time) {
	for id, list := range v.result.NodeAllocation {
		for i := range list {
			delete(f.usageByNode[id], list[i].ID)
		}
		if len(f.usageByNode[id]) == 0 {
			delete(f.usageByNode, id)
		}
	}
	last := f.lastCommits[v.job]
	f.lastCommits[v.job] = lastCommit{underway: last.underway - 1, index: max(last.index, index), at: now}
	if len(f.lastCommits) > maxLastCommits {
		maps.DeleteFunc(f.lastCommits, func(_ jobKey, l lastCommit) bool {
			return l.underway == 0 && now.Sub(l.at) > lastCommitTTL
		})
	}
}

// endCommit decrements underway for a commit that ended in any way. The last one wakes resolveDoubtful.
// The caller holds mu.
func (f *inFlight) endCommit() {
	if f.underway--; f.underway == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// resolveDoubtful waits until the doubtful commits are applied or never will be: until the commits in
// progress have ended and a barrier has passed. Then it drops them. It returns at once if none are
// doubtful.
func (f *inFlight) resolveDoubtful(ctx context.Context, cfg *Config) error {
	f.mu.Lock()
	if len(f.doubtful) == 0 {
		f.mu.Unlock()
		return nil
	}
	idle := f.idle
	if f.underway > 0 && idle == nil {
		idle = make(chan struct{})
		f.idle = idle
	}
	f.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := cfg.Barrier(ctx); err != nil {
		return err
	}
	index, now := cfg.State.View().Index(), cfg.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.doubtful {
		f.forgetPlan(v, index, now)
	}
	f.doubtful = nil
	return nil
}

// forgetAllPlans drops everything, when this hub no longer leads. No commit may be in progress.
func (f *inFlight) forgetAllPlans() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.usageByNode, f.lastCommits, f.doubtful = nil, nil, nil
}
