package scheduler_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/hub/state"
)

// tally is what lives have come to: a life in which nothing happens proves nothing.
type tally map[string]int

// expected says after how many events on average each of these has to have happened
// once, by which a run is judged that is at least ten times as long. What lives do is
// about three times that.
var expected = map[string]int{
	"allocations placed":                     8,
	"placed for what was lost or had failed": 200,
	"taken in place":                         60,
	"stopped":                                20,
	"retired":                                450,
	"out of sight":                           100,
	"back from out of sight":                 200,
	"lost":                                   100,
	"evicted":                                1500,
	"waits for capacity":                     60,
	"full nodes":                             30,
	"room made for a job":                    150,
	"failed for room that is made for another": 9000,
	"deployments begun":                        30,
	"deployments successful":                   60,
	"deployments failed":                       300,
	"deployments cancelled":                    100,
	"jobs rolled back":                         3000,
	"canaries placed":                          400,
	"canaries promoted":                        1200,
	"drains over":                              300,
	"taken down for a newer version":           250,
	"taken down before it was seen healthy":    15000,
	"taken down where a site has its limit":    1500,
	"judged anew, by a later deployment":       10000,
	"emptied for a newer version":              5000,
	"ended while the newest version is held":   250,
}

func (t tally) add(other tally) {
	for what, n := range other {
		t[what] += n
	}
}

// String lists what happened, and how often.
func (t tally) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&b, "\n%9d %s", t[what], what)
	}
	return b.String()
}

const reservedForHigherPriority = "room that is being made for a job of higher priority"

// rareOutcomes lists what has happened less often than is expected of so many events.
func (t tally) rareOutcomes(events int) (rare []string) {
	for _, what := range slices.Sorted(maps.Keys(expected)) {
		if want := events / expected[what]; want >= 10 && t[what] < want {
			rare = append(rare, fmt.Sprintf("%s: %d times in %d events, expected are %d", what, t[what], events, want))
		}
	}
	return rare
}

// addToTally notes that something happened.
func (l *modelTest) addToTally(what string, n int) {
	if n > 0 {
		l.tally[what] += n
	}
}

// tallyChanges notes what an event led to.
func (l *modelTest) tallyChanges(v *state.View) {
	for a := range v.Allocs("*", "") {
		old, known := l.before.Alloc(a.ID)
		if !known {
			l.observeNew(v, a)
			continue
		}
		l.observeChange(v, old, a)
	}
	for n := range v.Nodes("") {
		var used fleet.Resources
		for a := range v.AllocsByNode(n.ID) {
			if a.OccupiesNode() {
				used = used.Add(a.AllocatedResources)
			}
		}
		if n.Free().CPU-used.CPU < 100 {
			l.addToTally("full nodes", 1)
		}
		if old, ok := l.before.Node(n.ID); ok && old.DrainStrategy != nil && n.DrainStrategy == nil {
			l.addToTally("drains over", 1)
		}
	}
	for e := range v.Evals("*", "") {
		if old, known := l.before.Eval(e.ID); e.Status == fleet.EvalBlocked && (!known || old.Status != e.Status) {
			l.addToTally("waits for capacity", 1)
		}
		if old, known := l.before.Eval(e.ID); len(e.AwaitedNodes) > 0 && (!known || len(old.AwaitedNodes) == 0) {
			l.addToTally("room made for a job", 1)
		}
		if m := e.FailedTGAllocs["web"]; m != nil && m.DimensionExhausted[reservedForHigherPriority] > 0 && e.ModifyIndex > l.before.Index() {
			l.addToTally("failed for room that is made for another", 1)
		}
	}
	l.observeDeployments(v)
}

func (l *modelTest) observeNew(v *state.View, a *fleet.Alloc) {
	l.addToTally("allocations placed", 1)
	if a.DeploymentStatus.IsCanary() {
		l.addToTally("canaries placed", 1)
	}
	if prev, ok := v.Alloc(a.PreviousAllocation); ok && (prev.ClientStatus == fleet.ClientLost || prev.ClientStatus == fleet.ClientFailed) {
		l.addToTally("placed for what was lost or had failed", 1)
	}
}

func (l *modelTest) observeChange(v *state.View, old, a *fleet.Alloc) {
	became := func(what, was, is, status string) {
		if was != is && is == status {
			l.addToTally(what, 1)
		}
	}
	became("stopped", old.DesiredStatus, a.DesiredStatus, fleet.DesiredStop)
	if a.Retired && !old.Retired {
		l.addToTally("retired", 1)
	}
	became("evicted", old.DesiredStatus, a.DesiredStatus, fleet.DesiredEvict)
	became("out of sight", old.ClientStatus, a.ClientStatus, fleet.ClientUnknown)
	became("lost", old.ClientStatus, a.ClientStatus, fleet.ClientLost)
	if old.ClientStatus == fleet.ClientUnknown && a.ClientStatus != old.ClientStatus && !a.Terminal() {
		l.addToTally("back from out of sight", 1)
	}
	if old.DeploymentStatus.IsCanary() && !a.DeploymentStatus.IsCanary() {
		l.addToTally("canaries promoted", 1)
	}
	switch {
	case old.JobVersion != a.JobVersion && old.JobHash != a.JobHash:
		l.addToTally("taken in place", 1)
	case old.DeploymentID != a.DeploymentID:
		l.addToTally("judged anew, by a later deployment", 1)
	}
	j, ok := v.Job(a.Namespace, a.JobID)
	if d := v.LatestDeployment(a.Namespace, a.JobID); ok && d.Of(j) && !old.Terminal() && a.Terminal() &&
		(d.Status == fleet.DeploymentFailed || d.RequiresPromotion()) {
		l.addToTally("ended while the newest version is held", 1)
	}
}

func (l *modelTest) observeDeployments(v *state.View) {
	for d := range v.Deployments("*", "") {
		old, known := l.before.Deployment(d.ID)
		if !known {
			l.addToTally("deployments begun", 1)
		}
		if d.Active() || known && !old.Active() {
			continue
		}
		l.addToTally("deployments "+d.Status, 1)
		if strings.Contains(d.StatusDescription, "rolling back") {
			l.addToTally("jobs rolled back", 1)
		}
	}
}
