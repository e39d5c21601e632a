package planner

import (
	"context"
	"maps"
	"sync"
	"time"

	"skerry/fleet"
)

// usage is what allocations take of nodes.
type usage map[fleet.NodeID]map[fleet.AllocID]takes

// takes is what one allocation takes.
type takes struct {
	resources fleet.Resources
	allotment *fleet.Allotment
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
	lastKept = 10 * time.Minute
	lastMany = 1024
)

// inFlight is what verified plans will take of nodes once they are applied, and
// whose plans they are.
type inFlight struct {
	mu       sync.Mutex
	takes    usage
	last     map[jobKey]lastCommit
	open     int           // commits under way
	idle     chan struct{} // closed when open falls to zero; nil: nobody waits
	doubtful []*verified   // commits of which nobody knows whether they come
}

func (f *inFlight) add(v *verified) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	if f.takes == nil {
		f.takes, f.last = usage{}, map[jobKey]lastCommit{}
	}
	last := f.last[v.job]
	last.underway++
	f.last[v.job] = last
	for id, list := range v.result.NodeAllocation {
		if f.takes[id] == nil {
			f.takes[id] = map[fleet.AllocID]takes{}
		}
		for i := range list {
			f.takes[id][list[i].ID] = takes{list[i].AllocatedResources, list[i].Allotment}
		}
	}
}

// on copies what is in flight to nodes.
func (f *inFlight) on(nodes []fleet.NodeID) usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := usage{}
	for _, id := range nodes {
		if takes := f.takes[id]; len(takes) > 0 {
			out[id] = maps.Clone(takes)
		}
	}
	return out
}

// lastOf tells about a job's plans.
func (f *inFlight) lastOf(job jobKey) lastCommit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[job]
}

// remove ends a commit that is applied, or refused.
func (f *inFlight) remove(v *verified, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(v, v.result.AllocIndex, now)
	f.ended()
}

// doubt ends a commit that may still be applied: it counts until settle.
func (f *inFlight) doubt(v *verified) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubtful = append(f.doubtful, v)
	f.ended()
}

func (f *inFlight) forget(v *verified, index fleet.Index, now time.Time) {
	for id, list := range v.result.NodeAllocation {
		for i := range list {
			delete(f.takes[id], list[i].ID)
		}
		if len(f.takes[id]) == 0 {
			delete(f.takes, id)
		}
	}
	last := f.last[v.job]
	f.last[v.job] = lastCommit{underway: last.underway - 1, index: max(last.index, index), at: now}
	if len(f.last) > lastMany {
		maps.DeleteFunc(f.last, func(_ jobKey, l lastCommit) bool {
			return l.underway == 0 && now.Sub(l.at) > lastKept
		})
	}
}

func (f *inFlight) ended() {
	if f.open--; f.open == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// settle finds out what became of doubtful commits: once those under way have
// ended and a barrier has passed, whatever comes has come.
func (f *inFlight) settle(ctx context.Context, cfg *Config) error {
	f.mu.Lock()
	if len(f.doubtful) == 0 {
		f.mu.Unlock()
		return nil
	}
	idle := f.idle
	if f.open > 0 && idle == nil {
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
	if err := cfg.Applier.Barrier(ctx); err != nil {
		return err
	}
	index, now := cfg.State.View().Index(), cfg.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.doubtful {
		f.forget(v, index, now)
	}
	f.doubtful = nil
	return nil
}

// clear forgets everything: this hub does not lead any more.
func (f *inFlight) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takes, f.last, f.doubtful = nil, nil, nil
}
