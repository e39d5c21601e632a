package swarm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"skerry/edge"
	"skerry/edge/contract"
	"skerry/edge/local"
	"skerry/fleet"
)

// Edge is one virtual edge: a real edge.Edge with simulated runners, machine and network.
type Edge struct {
	// Set once.
	name string
	edge *edge.Edge
	gate networkGate

	mu      sync.Mutex
	runners map[fleet.AllocID]*runner // that have not returned
	starts  map[fleet.AllocID]int     // of tasks, ever
}

// NameOf returns the name of the n-th edge of a swarm, from 0.
func NameOf(prefix string, n int) string {
	return fmt.Sprintf("%s%05d", cmp.Or(prefix, defaultPrefix), n+1)
}

// openEdge opens the i-th edge of a swarm, and makes its data directory if it is missing.
func openEdge(cfg Config, i int) (*Edge, error) {
	e := &Edge{
		name: NameOf(cfg.Prefix, i), runners: map[fleet.AllocID]*runner{}, starts: map[fleet.AllocID]int{},
	}
	var err error
	e.edge, err = edge.Open(edge.Config{
		DataDir: filepath.Join(cfg.Dir, e.name), Hubs: hubsFor(cfg.Hubs, i), TokenFile: cfg.TokenFile,
		Name: e.name, Datacenter: cfg.Datacenter, NodePool: cfg.NodePool, Version: "swarm",
		BackoffCap: cfg.BackoffCap, Log: cfg.Log.With("edge", e.name),
		Runners:     e.newRunners,
		Describe:    func(configured fleet.Node) (edge.Describer, error) { return newMachine(configured, cfg.Resources), nil },
		ListenLocal: func(path string) (net.Listener, error) { return newIdleListener(path), nil },
		ListenPacket: func(ctx context.Context) (net.PacketConn, error) {
			conn, err := cfg.ListenPacket(ctx)
			if err != nil {
				return nil, err
			}
			return gatedConn{conn, &e.gate}, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", e.name, err)
	}
	return e, nil
}

// Name returns the node's name.
func (e *Edge) Name() string { return e.name }

// NodeID returns the node's id.
func (e *Edge) NodeID() fleet.NodeID { return e.edge.NodeID() }

// Agent returns the edge's local API without its socket.
func (e *Edge) Agent() local.Agent { return e.edge.Agent() }

// Cut drops every packet from and to the edge, silently, until Heal.
func (e *Edge) Cut() { e.gate.closed.Store(true) }

// Heal ends a Cut.
func (e *Edge) Heal() { e.gate.closed.Store(false) }

// SyncStatus says how far an edge is connected and how many rows the cluster lacks of it.
type SyncStatus struct {
	Connected          bool
	Node               fleet.NodeStatus // as a hub reported last
	Last, Acknowledged fleet.Seq        // of its journal
	Running            int              // allocations all of whose tasks run
}

// stateConnected is local.Link.State of a link with a committed session.
const stateConnected = "connected"

// SyncStatus returns the edge's status. It reads memory only.
func (e *Edge) SyncStatus() SyncStatus {
	link, journal := e.edge.SyncStatus()
	s := SyncStatus{
		Connected: link.State == stateConnected, Node: fleet.NodeStatus(link.Status),
		Last: journal.Last, Acknowledged: journal.Acknowledged,
	}
	for _, r := range e.activeRunners() {
		if r.countRunningTasks() == len(r.tasks) {
			s.Running++
		}
	}
	return s
}

// GenerateRows makes tasks crash and restart, and checks report, until so many rows are journaled, spread
// evenly over the running allocations. It returns when they are durable. It fails if no allocation runs.
func (e *Edge) GenerateRows(ctx context.Context, rows int) error {
	runners := e.activeRunners()
	if len(runners) == 0 {
		return fmt.Errorf("generate %d rows on %s: nothing runs there", rows, e.name)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, r := range runners {
		share := rows / len(runners)
		if i < rows%len(runners) {
			share++
		}
		g.Go(func() error {
			return r.callRunLoop(ctx, func(ctx context.Context) error { return r.generateRows(ctx, share) })
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("generate %d rows on %s: %w", rows, e.name, err)
	}
	return nil
}

// Running returns the tasks that run in each allocation. Each of them counts 1.
func (e *Edge) Running() map[fleet.AllocID]map[string]int {
	running := map[fleet.AllocID]map[string]int{}
	for _, r := range e.activeRunners() {
		for _, task := range r.tasks {
			if r.isTaskRunning(task) {
				if running[r.id] == nil {
					running[r.id] = map[string]int{}
				}
				running[r.id][task]++
			}
		}
	}
	return running
}

// Starts returns how often tasks of each allocation were started, since Open.
func (e *Edge) Starts() map[fleet.AllocID]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.starts)
}

// activeRunners returns the runners whose Run has not returned, by the allocation's id.
func (e *Edge) activeRunners() []*runner {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.runners), func(x, y *runner) int { return cmp.Compare(x.id, y.id) })
}

func (e *Edge) addRunner(r *runner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runners[r.id] = r
}

func (e *Edge) removeRunner(r *runner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runners, r.id)
}

// countTaskStart counts one start of a task for Starts.
func (e *Edge) countTaskStart(id fleet.AllocID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.starts[id]++
}

// newRunners returns a function that makes simulated runners. It is edge.Config.Runners.
func (e *Edge) newRunners(m edge.Machine) (contract.New, error) {
	return func(a fleet.Alloc, last contract.LastState, rec contract.Recorder) (contract.Runner, error) {
		return newRunner(e, m, a, last, rec), nil
	}, nil
}
