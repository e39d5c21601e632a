// Package neighbours keeps the services of the other edges of the site, as a hub delivers them, and finds out without a
// link whether they answer.
//
// edge.Open makes a Keeper, passes it the services of a hub's requests and the beginnings and ends of sessions, and asks it
// for the services of neighbours. Run has one goroutine that journals the copy, and one that tries services; a round of
// tries has maxTries more. The copy is there again after a reboot without a link. It has no secrets.
//
// Each change is in memory at once. It is journaled at once, too, unless the last change was journaled within saveEvery:
// then it is journaled at the end of that time, of the session, or of Run, so that a neighbour whose task crashes again and
// again does not wear out the disk. A hub compares the copy at the beginning of each session.
package neighbours

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/sorting"
	"skerry/syncproto"
)

// Journal is the part of the edge's journal that a Keeper uses.
type Journal interface {
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
	Away() time.Duration // since a hub answered last, in machine time
}

// Config of a Keeper. All fields are required.
type Config struct {
	Journal Journal
	// Dial opens the connections that find out whether a service answers.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Now  func() time.Time // wall clock, for display only
	Log  *slog.Logger
}

const (
	// keyPrefix begins the journal's keys of neighbours, one for each node. They belong to no allocation.
	keyPrefix     = "neighbour/"
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	maxRecord     = 1 << 20

	saveEvery = 10 * time.Minute // between two writes of changes, while the session lasts
	saveRetry = time.Minute      // after a write that failed
	saveLast  = 2 * time.Second  // for the write at the end
	// forgetAfter is how long a hub may be in reach without saying that the copy is exact: then the edge has no
	// neighbours any more, or the hub's release does not know them.
	forgetAfter = 5 * time.Minute
)

// record is the services of one node in the journal.
type record struct {
	Version  int                          `cbor:"1,keyasint"`
	Services []syncproto.DeliveredService `cbor:"2,keyasint"`
}

// Neighbour is a service of another edge, and what is known of it now.
type Neighbour struct {
	fleet.ServiceRegistration
	NodeName string
	Critical string    // why it does not answer; "": it does, or a hub knows no better, or it was not tried
	Since    time.Time // of Critical
	// Untried says that nobody knows whether it answers: it has no port, it was not tried yet, or it may be one of UDP.
	Untried bool
}

// Keeper keeps the services of neighbours. Its methods may be called from any goroutine.
type Keeper struct {
	cfg       Config
	accepting chan struct{} // capacity 1; full while a delivery is kept
	saving    chan struct{} // capacity 1; full while the journal is written
	wakeSave  chan struct{} // capacity 1
	wakeTries chan struct{} // capacity 1

	mu          sync.Mutex
	services    map[string]syncproto.DeliveredService // by id
	exact       bool                                  // a hub said in this session that the copy is exact
	unreachable map[fleet.NodeID]bool                 // nodes that had no link then
	confirmed   time.Time                             // when the copy was exact last, without exact
	answered    time.Time                             // the first answer of a hub in this session without exact; zero: none
	unsaved     map[fleet.NodeID]bool                 // nodes whose services are not in the journal as they are
	saveNow     bool                                  // they are to be journaled at once
	saved       time.Time                             // when changes were journaled last
	saveFailed  time.Time                             // when that failed last; zero: it did not
	results     map[string]result                     // of tries, by address
	nextTries   time.Time                             // when the next round may begin
}

// Open makes the Keeper and reads the copy from the journal. A record that cannot be read is left out: a hub delivers it
// again.
func Open(cfg Config) (*Keeper, error) {
	k := &Keeper{
		cfg: cfg, accepting: make(chan struct{}, 1), saving: make(chan struct{}, 1),
		wakeSave: make(chan struct{}, 1), wakeTries: make(chan struct{}, 1),
		services: map[string]syncproto.DeliveredService{}, unsaved: map[fleet.NodeID]bool{}, results: map[string]result{},
		confirmed: time.Now().Add(-cfg.Journal.Away()),
	}
	held, err := cfg.Journal.Handles(context.Background(), noAlloc)
	if err != nil {
		return nil, fmt.Errorf("read the services of neighbours: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(held)) {
		node, ours := strings.CutPrefix(key, keyPrefix)
		if !ours {
			continue
		}
		list, err := decodeRecord(fleet.NodeID(node), held[key])
		if err != nil {
			cfg.Log.Error("services of a neighbour not readable: a hub has to deliver them again", "node_id", node, "error", err)
			k.unsaved[fleet.NodeID(node)] = true
		}
		for _, d := range list[:min(len(list), syncproto.MaxServices-len(k.services))] {
			k.services[d.ID] = d
		}
	}
	return k, nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 6, Elements: syncproto.MaxServices, Pairs: 64})

// decodeRecord decodes the services of a node from the journal.
func decodeRecord(node fleet.NodeID, raw []byte) ([]syncproto.DeliveredService, error) {
	if len(raw) > maxRecord {
		return nil, fmt.Errorf("read the services of a neighbour: %d bytes", len(raw))
	}
	var r record
	if err := decoder.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("decode the services of a neighbour: %w", err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("decode the services of a neighbour: version %d", r.Version)
	}
	for i := range r.Services {
		d := &r.Services[i]
		if err := d.Check(); err != nil {
			return nil, err
		}
		if d.Node != node || d.Removed {
			return nil, fmt.Errorf("decode the services of a neighbour: service %.64q is of node %.64q, or was removed", d.ID, d.Node)
		}
	}
	return r.Services, nil
}

// Accept keeps the services that a hub delivers, and forgets those that it says are removed. Of a request that only asks it
// returns what the edge holds, without more than ids and sums. ctx ends with the session.
func (k *Keeper) Accept(ctx context.Context, req syncproto.Request) ([]syncproto.DeliveredService, error) {
	k.accepting <- struct{}{}
	defer func() { <-k.accepting }()
	if !req.Exact && len(req.Services) == 0 {
		return k.heldServices(), nil
	}
	for i := range req.Services {
		if err := req.Services[i].Check(); err != nil {
			return nil, err
		}
	}
	if err := k.applyChanges(req.Services); err != nil || !req.Exact {
		return nil, err
	}
	if k.noteExact(ctx, req.UnreachableNodes) {
		if err := k.saveChanges(ctx); err != nil {
			return nil, err
		}
	}
	wake(k.wakeSave)
	wake(k.wakeTries)
	return nil, nil
}

// heldServices lists the services that the edge holds, with ids and sums.
func (k *Keeper) heldServices() []syncproto.DeliveredService {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := make([]syncproto.DeliveredService, 0, len(k.services))
	for id, d := range k.services {
		held = append(held, syncproto.DeliveredService{ID: id, Sum: d.Sum})
	}
	sorting.Slice(held, func(a, b syncproto.DeliveredService) int { return cmp.Compare(a.ID, b.ID) })
	return held
}

// applyChanges changes the copy in memory.
func (k *Keeper) applyChanges(list []syncproto.DeliveredService) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range list {
		old, known := k.services[d.ID]
		if known {
			k.unsaved[old.Node] = true
		}
		switch {
		case d.Removed:
			delete(k.services, d.ID)
		case !known && len(k.services) >= syncproto.MaxServices:
			return fleet.Errorf(fleet.CodeConflict, "keep service %.64q of a neighbour: this edge has %d, which is its bound", d.ID, syncproto.MaxServices)
		default:
			k.services[d.ID], k.unsaved[d.Node] = d, true
		}
	}
	return nil
}

// noteExact records that the copy is exact, unless the session has ended, and reports whether changes are to be journaled
// now. What tries found out does not count any more, except of unreachable nodes.
func (k *Keeper) noteExact(ctx context.Context, unreachable []fleet.NodeID) (save bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	k.exact, k.answered, k.unreachable = true, time.Time{}, map[fleet.NodeID]bool{}
	for _, id := range unreachable {
		k.unreachable[id] = true
	}
	k.dropOldResults()
	return len(k.unsaved) > 0 && time.Since(k.saved) >= saveEvery
}

// NoteAnswer records that a hub has answered a heartbeat. A hub that does not say for forgetAfter that the copy is exact
// has no neighbours for this edge, and the edge forgets them. It does not wait.
func (k *Keeper) NoteAnswer() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.exact || len(k.services) == 0:
		return
	case k.answered.IsZero():
		k.answered = time.Now()
		return
	case time.Since(k.answered) < forgetAfter:
		return
	}
	for _, d := range k.services {
		k.unsaved[d.Node] = true
	}
	clear(k.services)
	k.saveNow = true
	wake(k.wakeSave)
}

// NoteSessionEnd records that the session with a hub is over: what tries find out counts from now on. It does not wait.
func (k *Keeper) NoteSessionEnd() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exact {
		k.confirmed = time.Now()
		k.nextTries = k.confirmed.Add(tryEvery) // the link often returns at once
	}
	k.exact, k.answered, k.unreachable = false, time.Time{}, nil
	k.saveNow = k.saveNow || len(k.unsaved) > 0
	wake(k.wakeSave)
	wake(k.wakeTries)
}

// Age returns how long ago the copy was exact; 0: it is.
func (k *Keeper) Age() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exact {
		return 0
	}
	return time.Since(k.confirmed)
}

// Services returns the services of neighbours in a namespace ("": in all) of a name ("": of all).
func (k *Keeper) Services(namespace, name string) []Neighbour {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []Neighbour
	for _, d := range k.services {
		if (namespace == "" || d.Namespace == namespace) && (name == "" || d.Name == name) {
			found = append(found, k.judgeService(&d))
		}
	}
	return found
}

// judgeService returns a service with what is known of it. The caller holds k.mu.
func (k *Keeper) judgeService(d *syncproto.DeliveredService) Neighbour {
	n := Neighbour{NodeName: d.NodeName, ServiceRegistration: fleet.ServiceRegistration{
		ID: d.ID, ServiceName: d.Name, Namespace: d.Namespace, NodeID: d.Node, Datacenter: d.Datacenter, JobID: d.Job, AllocID: d.Alloc,
		Tags: d.Tags, Address: d.Address, Port: d.Port, Status: fleet.ServiceReachable,
	}}
	if k.unreachable[d.Node] {
		n.Status = fleet.ServiceUnreachable
	}
	if !k.isTried(d) {
		return n
	}
	switch r := k.results[addressOf(d)]; {
	case addressOf(d) == "" || !r.tried || r.failure != "" && !d.TCP && !r.answered:
		n.Untried = true
	case r.failure != "":
		n.Critical, n.Since = r.failure, r.since
	}
	return n
}

// Run journals changes and tries services until ctx ends. It always returns nil.
func (k *Keeper) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { k.runSaves(ctx); return nil })
	g.Go(func() error { k.runTries(ctx); return nil })
	return g.Wait()
}

// runSaves journals changes when that is due, and what is left when ctx ends.
func (k *Keeper) runSaves(ctx context.Context) {
	for {
		var timer <-chan time.Time
		if at, any := k.nextSave(); any {
			timer = time.After(time.Until(at))
		}
		select {
		case <-k.wakeSave:
			continue // it may be due earlier now
		case <-timer:
			if err := k.saveChanges(ctx); err != nil && ctx.Err() == nil {
				k.cfg.Log.Warn("services of neighbours not journaled: trying again", "error", err)
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveLast)
			defer cancel()
			if err := k.saveChanges(last); err != nil {
				k.cfg.Log.Warn("services of neighbours not journaled", "error", err)
			}
			return
		}
	}
}

// nextSave returns when changes are to be journaled; false: there are none.
func (k *Keeper) nextSave() (at time.Time, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.unsaved) == 0 {
		return at, false
	}
	if !k.saveNow {
		at = k.saved.Add(saveEvery)
	}
	if retry := k.saveFailed.Add(saveRetry); !k.saveFailed.IsZero() && retry.After(at) {
		at = retry
	}
	return at, true
}

// saveChanges journals the services of the nodes whose services have changed.
func (k *Keeper) saveChanges(ctx context.Context) error {
	k.saving <- struct{}{}
	defer func() { <-k.saving }()
	for {
		node, list, any := k.takeUnsaved()
		if !any {
			return nil
		}
		var raw []byte
		var err error
		if len(list) > 0 {
			raw, err = codec.Marshal(record{recordVersion, list})
		}
		if err == nil {
			err = k.cfg.Journal.PutHandle(ctx, noAlloc, keyPrefix+string(node), raw)
		}
		k.mu.Lock()
		k.saved, k.saveFailed = time.Now(), time.Time{}
		if err != nil {
			k.unsaved[node], k.saveFailed = true, k.saved
		}
		k.mu.Unlock()
		if err != nil {
			return fmt.Errorf("journal the services of node %s: %w", fleet.Short(node), err)
		}
	}
}

// takeUnsaved returns the services of a node that are to be journaled, and counts them as saved; false: there is none.
func (k *Keeper) takeUnsaved() (node fleet.NodeID, list []syncproto.DeliveredService, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.unsaved) == 0 {
		k.saveNow = false
		return "", nil, false
	}
	node = slices.Min(slices.Collect(maps.Keys(k.unsaved)))
	delete(k.unsaved, node)
	for _, d := range k.services {
		if d.Node == node {
			list = append(list, d)
		}
	}
	sorting.Slice(list, func(a, b syncproto.DeliveredService) int { return cmp.Compare(a.ID, b.ID) })
	return node, list, true
}

// wake has the reader of a channel look again. It does not wait.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
