package gateway

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// Folder is the folder, for tests of what it makes of what sessions submit.
type Folder struct{ f *folder }

func NewFolder(apply Applier) *Folder {
	return &Folder{newFolder(apply, slog.New(slog.DiscardHandler))}
}

func (f *Folder) Run(ctx context.Context) error { return f.f.run(ctx) }

func (f *Folder) Submit(b state.NodeRows, gone <-chan struct{}, answer func(state.BatchResult, error)) {
	f.f.submit(submission{batch: b, gone: gone, answer: answer})
}

// Waiting is how many nodes it still holds something of.
func (f *Folder) Waiting() int {
	f.f.mu.Lock()
	defer f.f.mu.Unlock()
	return len(f.f.nodes)
}

const (
	FoldRows  = foldRows
	FoldBytes = foldBytes
)

// DesiredFrames are what a new session tells its edge.
func DesiredFrames(view *state.View, node fleet.NodeID, log *slog.Logger) []syncproto.Desired {
	return newDelivery(node, false, log).next(view, 0)
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

// PaidBack reports whether no row is on its way to the cluster.
func (g *Gateway) PaidBack() bool {
	if !g.budget.TryAcquire(MaxUpdates) {
		return false
	}
	g.budget.Release(MaxUpdates)
	return true
}
