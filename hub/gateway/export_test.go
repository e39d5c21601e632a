package gateway

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// UpdateBatcher is updateBatcher, for tests of the entries that it makes of submitted batches.
type UpdateBatcher struct{ f *updateBatcher }

func NewUpdateBatcher(apply state.Applier) *UpdateBatcher {
	return &UpdateBatcher{newUpdateBatcher(apply, slog.New(slog.DiscardHandler))}
}

func (f *UpdateBatcher) Run(ctx context.Context) error { return f.f.runCommitLoop(ctx) }

func (f *UpdateBatcher) Submit(b state.NodeRows, gone <-chan struct{}, answer func(state.BatchResult, error)) {
	f.f.submitBatch(queuedBatch{batch: b, sessionOver: gone, answer: answer})
}

// Waiting is how many nodes it still holds something of.
func (f *UpdateBatcher) Waiting() int {
	f.f.mu.Lock()
	defer f.f.mu.Unlock()
	return len(f.f.nodes)
}

const (
	MaxBatchRows  = maxBatchRows
	MaxBatchBytes = maxBatchBytes
)

// DesiredFrames are the frames that a new session sends to its edge.
func DesiredFrames(view *state.View, node fleet.NodeID, log *slog.Logger) []syncproto.Desired {
	return newDesiredProgress(node, false, log).nextFrames(view, 0)
}

// SetAllowance has an edge begin with little, and get more at these rates a second.
func (g *Gateway) SetAllowance(node fleet.NodeID, rows, sessions, describes float64) {
	a := g.allowances.forNode(node)
	for l, r := range map[*rate.Limiter]float64{a.rows: rows, a.sessions: sessions, a.describes: describes} {
		l.SetLimit(rate.Limit(r))
		l.ReserveN(time.Now(), l.Burst())
	}
}

// Allowances counts the edges whose allowance is remembered after sessions of so many.
func Allowances(nodes []fleet.NodeID) int {
	all := newAllowances()
	for _, id := range nodes {
		all.forNode(id)
	}
	return len(all.of)
}

// SiteCodesFor returns the ids of the codes that edges of a site and a pool get, sorted, and how many are for them.
func (g *Gateway) SiteCodesFor(site, pool string) (ids []string, count int) {
	wanted, _ := g.siteCodes.codesFor(codePlace{site, pool})
	return slices.Sorted(maps.Keys(wanted.codes)), wanted.count
}

// CodePlaces is of how many sites and pools the codes are kept.
func (g *Gateway) CodePlaces() int { return len(g.siteCodes.places) }

const MaxCodePlaces = maxCodePlaces

// PaidBack reports whether no row is on its way to the cluster.
func (g *Gateway) PaidBack() bool {
	if !g.budget.TryAcquire(MaxUpdates) {
		return false
	}
	g.budget.Release(MaxUpdates)
	return true
}
