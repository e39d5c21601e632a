package gateway

import (
	"context"
	"sync"

	"golang.org/x/time/rate"

	"skerry/fleet"
)

// Bounds of the commits for one edge, over all its sessions with this hub: a burst, and a rate per second. Nothing is
// refused because of them: rows are read later, a session is committed later, and only the newest node description is
// committed.
const (
	rowsAtOnce      = 32 << 20 // bytes: the history of an absence of months
	rowsRate        = 256 << 10
	sessionsAtOnce  = 60
	sessionsRate    = 0.5 // a link that flaps every 2 s for ever
	describesAtOnce = 20
	describesRate   = 0.1 // each one makes evaluations of jobs that may fit now
)

// allowance has the rate limits of one edge.
type allowance struct{ rows, sessions, describes *rate.Limiter }

func newAllowance() *allowance {
	return &allowance{
		rows:      rate.NewLimiter(rowsRate, rowsAtOnce),
		sessions:  rate.NewLimiter(sessionsRate, sessionsAtOnce),
		describes: rate.NewLimiter(describesRate, describesAtOnce),
	}
}

// isFull reports whether the edge has used nothing recently, so that a new allowance would permit no more.
func (a *allowance) isFull() bool {
	return a.rows.Tokens() >= rowsAtOnce && a.sessions.Tokens() >= sessionsAtOnce && a.describes.Tokens() >= describesAtOnce
}

// waitForRows waits until the edge may send so many bytes of rows, or ctx ends.
func (a *allowance) waitForRows(ctx context.Context, bytes int64) error {
	return a.rows.WaitN(ctx, int(min(bytes, rowsAtOnce)))
}

// allowances has the allowance of each edge that had a session recently.
type allowances struct {
	mu    sync.Mutex
	of    map[fleet.NodeID]*allowance
	sweep int // full ones are removed when there are so many
}

func newAllowances() *allowances { return &allowances{of: map[fleet.NodeID]*allowance{}, sweep: 1024} }

// forNode returns the allowance that all sessions of an edge share, and makes it if there is none.
func (p *allowances) forNode(node fleet.NodeID) *allowance {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.of[node]; of != nil {
		return of
	}
	if len(p.of) >= p.sweep {
		for id, of := range p.of {
			if of.isFull() {
				delete(p.of, id)
			}
		}
		p.sweep = max(1024, 2*len(p.of))
	}
	of := newAllowance()
	p.of[node] = of
	return of
}
