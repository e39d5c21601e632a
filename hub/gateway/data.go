package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

const (
	// dataStall is how long a copy may stand still, and an edge may take to make the data durable.
	dataStall = 5 * time.Minute
	// dataNews is how often an edge is told why data does not come yet: it gives up when no hub says anything.
	dataNews = 5 * time.Minute
	// maxDataRetryDelay bounds the pause before a failed copy or request is repeated.
	maxDataRetryDelay = time.Minute
	// maxDataSources bounds the chain of allocations that never began.
	maxDataSources = 100
)

// dataMover brings the allocations of an edge the data of their predecessors on other edges: those of groups with
// ephemeral_disk { migrate = true }. Only the hub decides whose data an edge gets, from its state: the predecessor's of an
// allocation that is placed on that edge. moveDue belongs to the goroutine of runSendLoop, the rest to the round that runs.
type dataMover struct {
	s       *session
	wake    func()
	request func(ctx context.Context, req syncproto.Request) error // without an answer
	take    func(ctx context.Context, alloc fleet.AllocID, data io.ReadCloser, moved func()) error

	mu      sync.Mutex
	running bool
	done    map[fleet.AllocID]bool // those that wait no more, in this session
	told    map[fleet.AllocID]toldReason
	retries map[fleet.AllocID]dataRetry
}

// toldReason is what an edge was told last, and when.
type toldReason struct {
	why string
	at  time.Time
}

// dataRetry says when a failed attempt is repeated.
type dataRetry struct {
	failed int
	at     time.Time
}

func newDataMover(s *session, wake func()) *dataMover {
	m := &dataMover{s: s, wake: wake, done: map[fleet.AllocID]bool{}, told: map[fleet.AllocID]toldReason{}, retries: map[fleet.AllocID]dataRetry{}}
	m.request = func(ctx context.Context, req syncproto.Request) error {
		_, err := s.sendDelivery(ctx, req, 0)
		return err
	}
	m.take = func(ctx context.Context, alloc fleet.AllocID, data io.ReadCloser, moved func()) error {
		return sendData(ctx, s, alloc, data, moved)
	}
	return m
}

// moveDue begins a round for the allocations that may wait for data, unless one runs, and has watch watch what that depends
// on. It returns when to call it again although nothing changes; 0: not at all.
func (m *dataMover) moveDue(ctx context.Context, watch *state.View) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	needs := dataNeeds(m.s.gw.cfg.State.View(), watch, m.s.node, m.done)
	if len(needs) == 0 || m.running {
		return 0 // the end of a round wakes
	}
	now, due, wait := time.Now(), needs[:0], dataNews
	for _, n := range needs {
		at := m.retries[n.alloc].at
		if t := m.told[n.alloc]; n.wait != "" && t.why == n.wait && at.IsZero() {
			at = t.at.Add(dataNews)
		}
		if at.After(now) {
			wait = shorter(wait, at.Sub(now))
			continue
		}
		due = append(due, n)
	}
	if len(due) > 0 {
		m.running = true
		m.s.work.Go(func() error { m.runRound(ctx, due); return nil })
	}
	return wait
}

// runRound tells the edge what does not come, and then brings the rest.
func (m *dataMover) runRound(ctx context.Context, needs []dataNeed) {
	for _, n := range needs {
		if len(n.sources) == 0 {
			m.noteOutcome(ctx, n, m.tellReason(ctx, n))
		}
	}
	for _, n := range needs {
		if len(n.sources) > 0 && ctx.Err() == nil {
			m.noteOutcome(ctx, n, m.bringData(ctx, n))
		}
	}
	m.mu.Lock()
	m.running = false
	m.mu.Unlock()
	m.wake()
}

// tellReason tells the edge why data does not come yet, or never.
func (m *dataMover) tellReason(ctx context.Context, n dataNeed) error {
	req := syncproto.Request{Kind: syncproto.RequestNoData, Alloc: n.alloc, Reason: n.never}
	if n.wait != "" {
		req.Reason, req.Wait = n.wait, true
	}
	if err := m.request(ctx, req); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told[n.alloc] = toldReason{req.Reason, time.Now()}
	m.done[n.alloc] = !req.Wait
	return nil
}

// noteOutcome notes how an attempt has ended: an allocation that does not wait is done, a failure is repeated.
func (m *dataMover) noteOutcome(ctx context.Context, n dataNeed, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch code := fleet.CodeOf(err); {
	case err == nil:
		delete(m.retries, n.alloc)
	case ctx.Err() != nil:
	case code == fleet.CodeConflict, code == fleet.CodeUnsupported:
		m.done[n.alloc] = true
		if code == fleet.CodeUnsupported {
			m.s.log.Warn("data not brought to the edge: its release is too old, and its allocation has begun without it", "alloc_id", string(n.alloc))
		}
	default:
		r := m.retries[n.alloc]
		r.failed++
		r.at = time.Now().Add(min(time.Duration(r.failed*r.failed)*time.Second, maxDataRetryDelay))
		m.retries[n.alloc] = r
		m.s.log.Info("data not brought to the edge yet", "alloc_id", string(n.alloc), "error", err)
	}
}

// bringData copies the data from the newest predecessor whose edge has any.
func (m *dataMover) bringData(ctx context.Context, n dataNeed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled := time.AfterFunc(dataStall, cancel)
	defer stalled.Stop()
	never := ""
	for _, source := range n.sources {
		data, err := m.s.gw.cfg.Elsewhere.Logs(ctx, source.node, syncproto.Request{Kind: syncproto.RequestData, Alloc: source.alloc})
		switch fleet.CodeOf(err) {
		case "":
		case fleet.CodeNotFound:
			never = fmt.Sprintf("edge %s has no data of it any more", source.name)
			continue
		case fleet.CodeUnsupported:
			never = fmt.Sprintf("edge %s has an older release, which cannot send it", source.name)
			continue
		default:
			why := fmt.Sprintf("edge %s does not send it yet: %v", source.name, err)
			return errors.Join(err, m.tellReason(ctx, dataNeed{alloc: n.alloc, wait: why}))
		}
		if err := m.take(ctx, n.alloc, data, func() { stalled.Reset(dataStall) }); err != nil {
			return err
		}
		m.mu.Lock()
		m.done[n.alloc] = true
		m.mu.Unlock()
		m.s.log.Info("data brought to the edge", "alloc_id", string(n.alloc), "previous", string(source.alloc), "from", string(source.node))
		m.releaseData(ctx, source)
		return nil
	}
	return m.tellReason(ctx, dataNeed{alloc: n.alloc, never: never})
}

// releaseData tells the edge of a predecessor that it may remove the data. It does so anyway after a while.
func (m *dataMover) releaseData(ctx context.Context, source dataSource) {
	out, err := m.s.gw.cfg.Elsewhere.Logs(ctx, source.node, syncproto.Request{Kind: syncproto.RequestReleaseData, Alloc: source.alloc})
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		m.s.log.Debug("data not released", "alloc_id", string(source.alloc), "error", err)
	}
}

// sendData sends data, which it closes, to an allocation of the session's edge, and returns once that is durable there.
// moved is called for each part.
func sendData(ctx context.Context, s *session, alloc fleet.AllocID, data io.ReadCloser, moved func()) error {
	var closing sync.Once
	closeData := func() { closing.Do(func() { _ = data.Close() }) } // only read from
	defer closeData()
	to, err := openRequest(ctx, s.conn, syncproto.Request{Kind: syncproto.RequestTakeData, Alloc: alloc})
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }() // its error is that of the session
	replies := syncproto.NewReader(to)
	if err := readReply(replies); err != nil {
		return err
	}
	var sending sync.WaitGroup
	var sent error
	sending.Go(func() {
		if _, sent = io.Copy(&movedWriter{to, moved}, data); sent != nil {
			_ = to.Close() // the edge learns that the rest does not come
		}
	})
	err = readReply(replies)
	closeData() // the edge may have refused the rest
	sending.Wait()
	if err != nil && fleet.CodeOf(err) == fleet.CodeInternal {
		err = errors.Join(sent, err)
	}
	return err
}

// movedWriter calls moved for each part that it writes.
type movedWriter struct {
	io.Writer
	moved func()
}

func (w *movedWriter) Write(b []byte) (int, error) {
	w.moved()
	return w.Writer.Write(b)
}

// readReply reads a Reply and returns its error.
func readReply(r *syncproto.Reader) error {
	m, err := r.Read()
	if err != nil {
		return fmt.Errorf("bring data: %w", err)
	}
	reply, ok := m.(syncproto.Reply)
	switch {
	case !ok:
		return fleet.Errorf(fleet.CodeFrameBad, "bring data: the node answered with %s", m.FrameType())
	case reply.Error != nil:
		return reply.Error
	}
	return nil
}

// dataSource is an ended allocation whose data another one needs, and its edge.
type dataSource struct {
	alloc fleet.AllocID
	node  fleet.NodeID
	name  string
}

// dataNeed is an allocation that may wait for data. Exactly one of the other fields is set.
type dataNeed struct {
	alloc   fleet.AllocID
	sources []dataSource // to be asked in this order
	wait    string       // why the data does not come yet
	never   string       // why it never comes
}

// dataNeeds returns the pending allocations of a node that replace others and want their data, without those in done. What it
// reads of the predecessors and of their nodes it reads through watch, which wakes the caller when that changes.
func dataNeeds(now, watch *state.View, node fleet.NodeID, done map[fleet.AllocID]bool) (needs []dataNeed) {
	for a := range now.AllocsByNode(node) {
		g := a.Group()
		if g == nil || !g.EphemeralDisk.Migrate || a.PreviousAllocation == "" || a.DesiredStatus != fleet.DesiredRun || a.ClientStatus != fleet.ClientPending || done[a.ID] {
			continue
		}
		needs = append(needs, dataNeedOf(watch, a))
	}
	return needs
}

// dataNeedOf decides about one allocation. While the edge of a predecessor is away, its data is not waited for: only the
// job's disconnect rules have made the replacement then.
func dataNeedOf(v *state.View, a *fleet.Alloc) dataNeed {
	need := dataNeed{alloc: a.ID}
	for id := a.PreviousAllocation; len(need.sources) < maxDataSources; {
		prev, known := v.Alloc(id)
		if !known {
			need.never = "the cluster does not know it any more"
			break
		}
		node, known := v.Node(prev.NodeID)
		switch {
		case !known:
			need.never = "its edge was removed from the cluster"
		case node.Status == fleet.NodeDisconnected, node.Status == fleet.NodeDown:
			need.never = fmt.Sprintf("it stays on edge %s, which is away since %s", node.Name, time.Unix(node.StatusUpdatedAt, 0).UTC().Format(time.RFC3339))
		case !prev.ClientTerminal():
			need.sources, need.wait = nil, fmt.Sprintf("that allocation has not ended on edge %s", node.Name)
			return need
		default:
			need.sources = append(need.sources, dataSource{prev.ID, node.ID, node.Name})
		}
		if hasRun(prev) || prev.PreviousAllocation == "" {
			break
		}
		id = prev.PreviousAllocation
	}
	if len(need.sources) > 0 {
		need.never = ""
	}
	return need
}

// hasRun reports whether a task of an allocation was started.
func hasRun(a *fleet.Alloc) bool {
	for _, t := range a.TaskStates {
		if t.StartedAt != nil || t.State == fleet.TaskRunning {
			return true
		}
	}
	return false
}
