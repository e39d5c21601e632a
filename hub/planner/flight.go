package planner

import (
	"context"
	"maps"
	"sync"
	"time"

	"skerry/fleet"
)

// usage is what allocations take of nodes.
type usage map[fleet.NodeID]map[fleet.AllocID]allocUsage

// allocUsage is what one allocation takes.
type allocUsage struct {
	resources         fleet.Resources
	assignedResources *fleet.AssignedResources
}

// lastCommit is what is known of a job's plans: how many are being committed, and
// which entry has the last one.
type lastCommit struct {
	underway int
	index    fleet.Index
	at       time.Time
}

// Bounds of what is remembered of jobs: longer than any worker may hold a plan
// back.
const (
	lastCommitTTL  = 10 * time.Minute
	maxLastCommits = 1024
)

// inFlight is what verified plans will take of nodes once they are applied, and
// whose plans they are.
type inFlight struct {
	mu          sync.Mutex
	usageByNode usage
	lastCommits map[jobKey]lastCommit
	underway    int             // commits under way
	idle        chan struct{}   // closed when open falls to zero; nil: nobody waits
	doubtful    []*verifiedPlan // commits of which nobody knows whether they come
}

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

// usageOnNodes copies what is in flight to nodes.
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

// lastCommitOf tells about a job's plans.
func (f *inFlight) lastCommitOf(job jobKey) lastCommit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastCommits[job]
}

// removePlan ends a commit that is applied, or refused.
func (f *inFlight) removePlan(v *verifiedPlan, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetPlan(v, v.result.AllocIndex, now)
	f.endCommit()
}

// markDoubtful ends a commit that may still be applied: it counts until settle.
func (f *inFlight) markDoubtful(v *verifiedPlan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubtful = append(f.doubtful, v)
	f.endCommit()
}

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

func (f *inFlight) endCommit() {
	if f.underway--; f.underway == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// resolveDoubtful finds out what became of doubtful commits: once those under way have
// ended and a barrier has passed, whatever comes has come.
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

// forgetAllPlans forgets everything: this hub does not lead any more.
func (f *inFlight) forgetAllPlans() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.usageByNode, f.lastCommits, f.doubtful = nil, nil, nil
}
