package journal

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"skerry/fleet"
	"skerry/syncproto"
)

// Desired is the journaled desired state of this edge. Index, Cluster and Term are those of the newest
// delivery. Allocs holds every allocation that a delivery has named and Remove has not removed, stopped ones
// included.
type Desired struct {
	Index   fleet.Index
	Cluster string
	Term    uint64
	Allocs  map[fleet.AllocID]DesiredAlloc
}

// DesiredAlloc is one allocation of the desired state. If Stop is true, it must not run, or must stop for
// StopReason.
type DesiredAlloc struct {
	Alloc      fleet.Alloc // Job is nil while its body is missing; only the ID is set if only a stop is known
	Stop       bool
	StopReason string
	// Windows are the update windows in which the stop may begin; none: it begins at once.
	Windows []fleet.UpdateWindow
	// NoDelay skips every shutdown_delay.
	NoDelay bool
	// KeptStopped says that an operator on site stopped the allocation, and that no other allocation of its
	// name may start here.
	KeptStopped bool
	// Mentioned is the index of the newest delivery that named the allocation.
	Mentioned fleet.Index
}

// delivery identifies the newest delivery of a hub. The meta table stores it.
type delivery struct {
	Index   fleet.Index `cbor:"1,keyasint"`
	Cluster string      `cbor:"2,keyasint"`
	Term    uint64      `cbor:"3,keyasint"`
}

// PutDesired journals a hub's delivery (allocations, stops, job bodies, index) and returns the hashes of job
// bodies that are still missing. Allocations that d does not name do not change. A stopped allocation stays
// stopped for good.
func (j *Journal) PutDesired(ctx context.Context, d syncproto.Desired) (missing []string, err error) {
	var lacking []string // owned by the writer until it has answered
	err = j.submitOp(ctx, &op{write: func(b *batch) (err error) {
		lacking, err = b.putDelivery(d)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return lacking, nil
}

// putDelivery writes a delivery and returns the hashes of job bodies that are still missing. An allocation that
// is already stopped stays so. A body that cannot be decoded is logged and skipped, so it stays missing.
func (b *batch) putDelivery(d syncproto.Desired) (missing []string, err error) {
	b.durable.desired = nil
	if err := b.announceStep(StepDesired); err != nil {
		return nil, err
	}
	for _, body := range d.Bodies {
		if _, err := syncproto.DecodeJob(body.Job); err != nil {
			b.j.log.Warn("job body is invalid: ignored", "hash", body.Hash, "error", err)
			continue // the body stays missing, and the hub learns that
		}
		if err := b.db.putBody(body.Hash, body.Job); err != nil {
			return nil, err
		}
	}
	for _, a := range d.Run {
		held, err := b.storedDesiredOf(a.ID)
		if err != nil {
			return nil, err
		}
		a.StopWindows, a.StopNow, a.KeptStopped = held.alloc.StopWindows, held.alloc.StopNow, held.alloc.KeptStopped
		held.alloc, held.job, held.mentioned = a, a.JobHash, int64(d.Index)
		if err := b.db.putDesired(held); err != nil {
			return nil, err
		}
	}
	for _, s := range d.Stop {
		if err := b.recordStop(s, d.Index); err != nil {
			return nil, err
		}
	}
	if err := b.db.putMeta(metaDesired, delivery{Index: d.Index, Cluster: d.Cluster, Term: d.Term}); err != nil {
		return nil, err
	}
	return b.missingBodies()
}

// recordStop marks an allocation as stopped, also one that is not known yet, so that a later delivery does not
// start it. Once a stop may begin at once, its reason stays and it never waits for update windows again; once a
// stop skips the shutdown_delay, every later one does.
func (b *batch) recordStop(s syncproto.DesiredStop, mentioned fleet.Index) error {
	held, err := b.storedDesiredOf(s.ID)
	if err != nil {
		return err
	}
	reason := s.Reason
	switch waited := len(held.alloc.StopWindows) > 0; {
	case held.stop && !waited:
		reason, s.Windows = held.reason, nil
	case held.stop && len(s.Windows) > 0:
		reason = held.reason
	}
	b.durable.desired = nil
	held.alloc.ID, held.alloc.StopWindows, held.alloc.StopNow = s.ID, s.Windows, s.NoDelay || held.alloc.StopNow
	held.stop, held.reason, held.mentioned = true, reason, max(held.mentioned, int64(mentioned))
	return b.db.putDesired(held)
}

// storedDesiredOf returns the stored desired state of an allocation; the zero value if there is none.
func (b *batch) storedDesiredOf(id fleet.AllocID) (s storedDesired, err error) {
	err = b.db.forEachResult(selectDesired+" WHERE alloc = ?", []any{string(id)}, func(rows *sql.Rows) (bool, error) {
		s, err = scanDesired(rows)
		return false, err
	})
	return s, err
}

// missingBodies returns the hashes of the job bodies that the journal lacks. Only allocations that are neither
// stopped nor ended need theirs.
func (b *batch) missingBodies() (missing []string, err error) {
	seen := map[string]bool{}
	err = b.db.forEachResult("SELECT alloc, job FROM desired WHERE stop = 0 AND job NOT IN (SELECT hash FROM bodies) ORDER BY alloc", nil,
		func(rows *sql.Rows) (bool, error) {
			var id, hash string
			if err := rows.Scan(&id, &hash); err != nil {
				return false, err
			}
			if !seen[hash] && !b.allocState(fleet.AllocID(id)).Terminal() {
				seen[hash] = true
				missing = append(missing, hash)
			}
			return true, nil
		})
	return missing, err
}

// Desired returns the desired state. The caller may change the map Allocs, but not what its values refer to.
// The tables are decoded only once after each change, because allocations that restart every few seconds read
// it as often.
func (j *Journal) Desired(ctx context.Context) (Desired, error) {
	var want Desired
	err := j.submitOp(ctx, &op{read: func(d *database) error {
		held, err := j.cachedDesired(d)
		if err == nil {
			want = *held
			want.Allocs = maps.Clone(held.Allocs)
		}
		return err
	}})
	if err != nil {
		return Desired{}, fmt.Errorf("read desired state: %w", err)
	}
	return want, nil
}

// cachedDesired returns the desired state from memory, and decodes it from the tables first if it has changed.
// Only the writer may call it. The result is shared and must not be changed.
func (j *Journal) cachedDesired(d *database) (*Desired, error) {
	if j.durable.desired != nil {
		return j.durable.desired, nil
	}
	want, err := d.readDesired()
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	j.durable.desired = &want
	j.mu.Unlock()
	return &want, nil
}

// readDesired decodes the desired state from its tables.
func (d *database) readDesired() (Desired, error) {
	var last delivery
	if err := d.readMeta(metaDesired, &last); err != nil {
		return Desired{}, err
	}
	bodies, err := d.readJobBodies()
	if err != nil {
		return Desired{}, err
	}
	want := Desired{Index: last.Index, Cluster: last.Cluster, Term: last.Term, Allocs: map[fleet.AllocID]DesiredAlloc{}}
	err = d.forEachResult(selectDesired+" ORDER BY alloc", nil, func(rows *sql.Rows) (bool, error) {
		s, err := scanDesired(rows)
		if err != nil {
			return false, err
		}
		a := DesiredAlloc{
			Alloc: allocOf(s.alloc, bodies[s.alloc.JobHash]), Stop: s.stop, StopReason: s.reason, Mentioned: fleet.Index(s.mentioned), NoDelay: s.alloc.StopNow,
			KeptStopped: s.alloc.KeptStopped,
		}
		for _, w := range s.alloc.StopWindows {
			a.Windows = append(a.Windows, fleet.UpdateWindow(w))
		}
		want.Allocs[s.alloc.ID] = a
		return true, nil
	})
	return want, err
}

// readJobBodies returns, by their hashes, the jobs that allocations of the desired state refer to.
func (d *database) readJobBodies() (map[string]*fleet.Job, error) {
	bodies := map[string]*fleet.Job{}
	err := d.forEachResult(selectBodies+" WHERE hash IN (SELECT job FROM desired)", nil, func(rows *sql.Rows) (bool, error) {
		s, err := scanBody(rows)
		if err != nil {
			return false, err
		}
		bodies[s.hash] = s.job
		return true, nil
	})
	return bodies, err
}

// allocOf builds an allocation; job is nil while the body is missing. One body can serve several
// versions of a job, so the version is the allocation's.
func allocOf(d syncproto.DesiredAlloc, job *fleet.Job) fleet.Alloc {
	a := fleet.Alloc{
		ID: d.ID, Namespace: d.Namespace, Name: d.Name, NodeName: d.NodeName,
		JobID: d.JobID, JobVersion: d.JobVersion, JobHash: d.JobHash, TaskGroup: d.TaskGroup,
		AllocatedResources: d.Resources, Allotment: d.Allotment, PreviousAllocation: d.Previous,
		DesiredStatus: fleet.DesiredRun, CreateIndex: d.CreateIndex, AllocModifyIndex: d.ModifyIndex, DeploymentID: d.Deployment,
	}
	if job != nil {
		own := *job
		own.Version = d.JobVersion
		a.Job = &own
	}
	return a
}

// Stop journals, together with the rows ts, a stop that this edge decides (for an operator on site or
// stop_on_client_after). It does not touch the tasks: edge/allocs stops them afterwards.
func (j *Journal) Stop(ctx context.Context, stop syncproto.DesiredStop, ts ...fleet.Transition) error {
	return j.submitOp(ctx, &op{write: func(b *batch) error {
		if err := b.announceStep(StepStop); err != nil {
			return err
		}
		if err := b.recordStop(stop, 0); err != nil {
			return err
		}
		return b.recordTransitions(ts)
	}})
}

// KeepStopped journals, together with the rows ts, whether the names of the stopped allocations ids are kept
// stopped: while kept is true, no other allocation of such a name may start. Unknown allocations are skipped.
func (j *Journal) KeepStopped(ctx context.Context, ids []fleet.AllocID, kept bool, ts ...fleet.Transition) error {
	return j.submitOp(ctx, &op{write: func(b *batch) error {
		for _, id := range ids {
			held, err := b.storedDesiredOf(id)
			if err != nil {
				return err
			}
			if held.alloc.ID == "" || held.alloc.KeptStopped == kept {
				continue
			}
			if err := b.announceStep(StepStop); err != nil {
				return err
			}
			b.durable.desired = nil
			held.alloc.KeptStopped = kept
			if err := b.db.putDesired(held); err != nil {
				return err
			}
		}
		return b.recordTransitions(ts)
	}})
}

// statesKept is the number of removed allocations whose states are kept.
const statesKept = 1000

// Remove deletes the desired state, the handles and the unused job bodies of an allocation. It refuses one that
// has not ended. The allocation's state stays, so that it never starts again; the newest 1,000 such states are
// kept.
func (j *Journal) Remove(ctx context.Context, alloc fleet.AllocID) error {
	return j.submitOp(ctx, &op{write: func(b *batch) error {
		if s := b.allocState(alloc); !s.Terminal() {
			return refusedWrite{fmt.Errorf("remove allocation %s from the journal: it has not ended, it is %q", alloc, s.ClientStatus)}
		}
		return b.removeAlloc(alloc)
	}})
}

// removeAlloc deletes an allocation's desired state and handles, job bodies that no allocation uses any more,
// and old states beyond statesKept.
func (b *batch) removeAlloc(alloc fleet.AllocID) error {
	b.durable.desired = nil
	if err := b.announceStep(StepRemove); err != nil {
		return err
	}
	for _, q := range []string{"DELETE FROM desired WHERE alloc = ?", "DELETE FROM handles WHERE alloc = ?"} {
		if err := b.db.execStatement(q, string(alloc)); err != nil {
			return err
		}
	}
	if err := b.db.execStatement("DELETE FROM bodies WHERE hash NOT IN (SELECT job FROM desired)"); err != nil {
		return err
	}
	return b.forgetStates()
}

// forgetStates deletes the oldest states of removed allocations, until statesKept of them are left.
func (b *batch) forgetStates() error {
	held := map[fleet.AllocID]bool{}
	err := b.db.forEachResult("SELECT alloc FROM desired", nil, func(rows *sql.Rows) (bool, error) {
		var id string
		err := rows.Scan(&id)
		held[fleet.AllocID(id)] = true
		return true, err
	})
	if err != nil {
		return err
	}
	for len(b.durable.states)-len(held) > statesKept {
		var oldest fleet.AllocID
		for id, s := range b.durable.states {
			_, changed := b.states[id]
			if !held[id] && !changed && (oldest == "" || s.Seq < b.durable.states[oldest].Seq) {
				oldest = id
			}
		}
		if oldest == "" {
			return nil
		}
		b.states[oldest] = State{}
		held[oldest] = true
	}
	return nil
}

// PutHandle stores a runner's record under a key, for example a driver's handle of a task; nil removes it. The
// handle and the rows ts become durable together, or not at all.
func (j *Journal) PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	return j.submitOp(ctx, &op{write: func(b *batch) error {
		if err := b.putHandle(alloc, key, handle); err != nil {
			return err
		}
		return b.recordTransitions(ts)
	}})
}

// PutHandles stores a record under the same key of each of several allocations, in one commit.
func (j *Journal) PutHandles(ctx context.Context, key string, handles map[fleet.AllocID][]byte) error {
	if len(handles) == 0 {
		return nil
	}
	return j.submitOp(ctx, &op{write: func(b *batch) error {
		for _, id := range slices.Sorted(maps.Keys(handles)) {
			if err := b.putHandle(id, key, handles[id]); err != nil {
				return err
			}
		}
		return nil
	}})
}

// putHandle stores or removes (nil) a runner's record within this batch.
func (b *batch) putHandle(alloc fleet.AllocID, key string, handle []byte) error {
	if err := b.announceStep(StepHandle); err != nil {
		return err
	}
	if handle == nil {
		return b.db.execStatement("DELETE FROM handles WHERE alloc = ? AND key = ?", string(alloc), key)
	}
	return b.db.putHandle(storedHandle{alloc: string(alloc), key: key, handle: handle})
}

// Handles returns what PutHandle stored for an allocation, by key.
func (j *Journal) Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error) {
	handles := map[string][]byte{}
	err := j.readHandles(ctx, "alloc", string(alloc), func(h storedHandle, err error) error {
		handles[h.key] = h.handle
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the handles of allocation %s: %w", alloc, err)
	}
	return handles, nil
}

// HandlesUnder returns what is stored under a key, by allocation. It leaves out damaged ones: they hold up no other.
func (j *Journal) HandlesUnder(ctx context.Context, key string) (map[fleet.AllocID][]byte, error) {
	handles := map[fleet.AllocID][]byte{}
	err := j.readHandles(ctx, "key", key, func(h storedHandle, err error) error {
		if err == nil {
			handles[fleet.AllocID(h.alloc)] = h.handle
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the handles under the key %q: %w", key, err)
	}
	return handles, nil
}

// readHandles calls visit for each handle with a value in a column of the table; err says that the handle is damaged. It ends
// with the first error that visit returns.
func (j *Journal) readHandles(ctx context.Context, column, value string, visit func(h storedHandle, err error) error) error {
	return j.submitOp(ctx, &op{read: func(d *database) error {
		return d.forEachResult(selectHandles+" WHERE "+column+" = ?", []any{value}, func(rows *sql.Rows) (bool, error) {
			return true, visit(scanHandle(rows))
		})
	}})
}
