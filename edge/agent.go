package edge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"skerry/edge/allocs"
	"skerry/edge/files"
	"skerry/edge/local"
	"skerry/edge/tasklog"
	"skerry/fleet"
	"skerry/fleet/usage"
	"skerry/internal/logtap"
	"skerry/internal/sorting"
	"skerry/syncproto"
	"skerry/syncproto/identity"
)

// agent implements local.Agent for the local API.
type agent struct{ e *Edge }

// Agent returns the agent that the local API serves, for callers in this process.
func (e *Edge) Agent() local.Agent { return agent{e} }

// Rows returns the rows that the journal still holds after a sequence number, in order.
func (e *Edge) Rows(ctx context.Context, after fleet.Seq) ([]fleet.Transition, error) {
	return e.journal.History(ctx, "", after)
}

// SyncStatus returns the status of the link and of the journal. It reads memory only, so that a swarm can poll
// it often.
func (e *Edge) SyncStatus() (local.Link, local.Journal) {
	return agent{e}.linkStatus(), agent{e}.journalStatus()
}

// Status returns the status of the edge, its link, its journal and all its allocations.
func (a agent) Status(ctx context.Context) (local.Status, error) {
	e := a.e
	all, err := a.allocStatuses(ctx)
	if err != nil {
		return local.Status{}, err
	}
	return local.Status{
		NodeID: e.node, Name: e.cfg.Name, Datacenter: e.cfg.Datacenter, Site: cmp.Or(e.cfg.Site, e.cfg.Datacenter), TimeZone: e.cfg.TimeZone, NodePool: e.cfg.NodePool,
		Version: e.cfg.Version, BootID: e.boot, Uptime: e.journal.Mono(), Started: e.started,
		Enrolled: e.isEnrolled(), Cert: a.certificateStatus(), Link: a.linkStatus(), Journal: a.journalStatus(), Disk: a.diskStatus(), Key: a.keyStatus(), Allocs: all,
	}, nil
}

// keyStatus returns how the machine's key is kept.
func (a agent) keyStatus() local.MachineKey {
	s := a.e.keyStore.Status()
	return local.MachineKey{Place: string(s.Place), Wanted: string(s.Wanted), LastError: s.Error}
}

// diskStatus returns the space on the disk of the data directory, and its reserve.
func (a agent) diskStatus() local.Disk {
	s := a.e.dir.Space()
	return local.Disk{Full: s.Full(), Free: s.Free, Reserve: s.Reserve, Reserved: s.Reserved, NoNewAllocs: a.e.space.WhyFull()}
}

// certificateStatus returns when the edge's certificate ends and when the edge renews it. It is zero before enrolment.
func (a agent) certificateStatus() local.Certificate {
	a.e.mu.Lock()
	id, failed := a.e.identity, a.e.renewErr
	a.e.mu.Unlock()
	if id == nil {
		return local.Certificate{}
	}
	c := local.Certificate{NotAfter: id.Cert.NotAfter, RenewAt: identity.RenewAt(id.Cert)}
	if failed != nil {
		c.LastError = failed.Error()
	}
	return c
}

// stateEnrolling is the link's state before the edge has a certificate.
const stateEnrolling = "enrolling"

// linkStatus returns the status of the link, or of the enrolment while the edge enrols.
func (a agent) linkStatus() local.Link {
	e := a.e
	e.mu.Lock()
	l, failed := e.link, e.enrolErr
	e.mu.Unlock()
	if l == nil {
		s := local.Link{State: stateEnrolling, Hubs: e.cfg.Hubs, Away: e.journal.Away()}
		if failed != nil {
			s.LastError = failed.Error()
		}
		return s
	}
	s := l.Status()
	return local.Link{
		State: string(s.State), Hub: s.Hub, Hubs: s.Hubs, Session: s.Session, Status: string(s.NodeStatus), Reason: s.NodeReason,
		LastError: s.LastError, Away: s.Away, NextTry: s.NextTry, Fenced: s.Fenced, WentBack: s.WentBack,
		BytesSent: s.BytesSent, BytesReceived: s.BytesReceived,
	}
}

// journalStatus returns the status of the journal, from memory only.
func (a agent) journalStatus() local.Journal {
	h, used := a.e.journal.Head(), a.e.journal.Usage()
	s := local.Journal{
		First: h.First, Last: h.Last, Acknowledged: h.Acknowledged, Unacknowledged: uint64(h.Last - h.Acknowledged),
		Bytes: used.Bytes, Dropped: used.Dropped, DesiredIndex: linkEdge(a).Desired(), Lost: h.Lost,
	}
	for _, q := range a.e.journal.Quarantined() {
		s.Quarantined = append(s.Quarantined, local.Quarantine(q))
	}
	return s
}

// allocStatuses returns all allocations as the local API shows them, by name.
func (a agent) allocStatuses(ctx context.Context) ([]local.Alloc, error) {
	held, err := a.e.allocs.Status(ctx)
	if err != nil {
		return nil, err
	}
	acknowledged := a.e.journal.Head().Acknowledged
	all := make([]local.Alloc, 0, len(held))
	for id, s := range held {
		w := s.Desired.Alloc
		one := local.Alloc{
			ID: id, Name: w.Name, JobID: w.JobID, TaskGroup: w.TaskGroup, JobVersion: w.JobVersion,
			Desired: fleet.DesiredRun, ClientStatus: cmp.Or(s.State.ClientStatus, fleet.ClientPending),
			ClientDescription: s.State.ClientDescription, Note: s.Note, StopsIn: s.StopsIn,
			BetweenLaunches: s.BetweenLaunches, Held: s.State.Held, Tasks: s.State.TaskStates, LastSeq: s.State.Seq, Unsent: s.State.Seq > acknowledged,
		}
		a.addKeptCopies(&one, &w)
		if s.Desired.Stop {
			one.Desired, one.DesiredReason = fleet.DesiredStop, s.Desired.StopReason
		}
		all = append(all, one)
	}
	sorting.Slice(all, func(x, y local.Alloc) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	return all, nil
}

// History returns the rows that the journal still holds: those of an allocation, or all for "".
func (a agent) History(ctx context.Context, alloc fleet.AllocID) ([]fleet.Transition, error) {
	if alloc != "" {
		full, err := a.resolveAllocID(ctx, alloc)
		if err != nil {
			return nil, err
		}
		alloc = full
	}
	return a.e.journal.History(ctx, alloc, 0)
}

// Logs opens a task's output for reading.
func (a agent) Logs(ctx context.Context, req local.LogRequest) (io.ReadCloser, error) {
	id, err := a.resolveAllocID(ctx, req.Alloc)
	if err != nil {
		return nil, err
	}
	return a.e.openLogs(ctx, id, tasklog.Request{
		Task: req.Task, Stream: req.Stream, Offset: req.Offset, Origin: req.Origin, Follow: req.Follow,
	})
}

// Stop stops an allocation and holds it, or ends it if req.MayReturn. The stop is journaled when Stop returns; the
// tasks end later.
func (a agent) Stop(ctx context.Context, req local.StopRequest) (err error) {
	id, err := a.resolveAllocID(ctx, req.Alloc)
	defer func() { a.recordAction(ctx, fleet.LocalStop, objectOf(id, req.Alloc, ""), req.Reason, err) }()
	if err != nil {
		return err
	}
	return a.e.allocs.Stop(ctx, id, allocs.StopOnSite{Person: personOf(ctx, req.Reason), NoDelay: req.NoShutdownDelay, MayReturn: req.MayReturn})
}

// Start releases the hold on the name of an allocation, after Stop.
func (a agent) Start(ctx context.Context, alloc fleet.AllocID, reason string) (_ local.Started, err error) {
	id, err := a.resolveAllocID(ctx, alloc)
	defer func() { a.recordAction(ctx, fleet.LocalStart, objectOf(id, alloc, ""), reason, err) }()
	if err != nil {
		return local.Started{}, err
	}
	name, waiting, err := a.e.allocs.Start(ctx, id, personOf(ctx, reason))
	return local.Started{Name: name, Waiting: waiting}, err
}

// restartWait bounds how long a person on site waits until a restart is journaled.
const restartWait = 10 * time.Second

// Restart restarts one task of an allocation, or all running ones for "". It returns when that is journaled, or with
// fleet.CodeTimeout after restartWait.
func (a agent) Restart(ctx context.Context, alloc fleet.AllocID, task, reason string) (err error) {
	id, err := a.resolveAllocID(ctx, alloc)
	defer func() { a.recordAction(ctx, fleet.LocalRestart, objectOf(id, alloc, task), reason, err) }()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, restartWait)
	defer cancel()
	err = a.e.allocs.Restart(bounded, id, task, personOf(ctx, reason))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fleet.Errorf(fleet.CodeTimeout, "restart allocation %s: not journaled within %s", fleet.Short(id), restartWait).
			WithHint("is the disk full? The restart may still happen, once there is space: see skerry local status")
	}
	return err
}

// Exec runs a command beside a task for an operator on site. It journals who ran which program. The audit has the
// command before it begins, and again if it is refused.
func (a agent) Exec(ctx context.Context, req local.ExecRequest, x fleet.Exec) (code int, err error) {
	id, task, err := a.findTask(ctx, req.Alloc, req.Task)
	object := objectOf(id, req.Alloc, cmp.Or(task, req.Task))
	if err == nil {
		a.recordAction(ctx, fleet.LocalExec, object, x.Command[0], nil)
		code, err = a.e.allocs.ExecOnSite(ctx, id, task, local.PeerOf(ctx), x)
	}
	if err != nil {
		a.recordAction(ctx, fleet.LocalExec, object, x.Command[0], err)
	}
	return code, err
}

// findTask returns the full id of an allocation, and the name of its task.
func (a agent) findTask(ctx context.Context, alloc fleet.AllocID, task string) (fleet.AllocID, string, error) {
	id, err := a.resolveAllocID(ctx, alloc)
	if err != nil {
		return id, "", err
	}
	s, err := a.e.heldAllocStatus(ctx, id)
	if err != nil {
		return id, "", err
	}
	task, err = findTaskName(s.Desired.Alloc, task)
	return id, task, err
}

// objectOf returns the object of an action: the allocation by its full id, or as it was asked for, and the task.
func objectOf(id, asked fleet.AllocID, task string) string {
	object := string(cmp.Or(id, asked))
	if task != "" {
		object += "/" + task
	}
	return object
}

// recordAction writes what somebody on site did, and the code of its error.
func (a agent) recordAction(ctx context.Context, verb, object, reason string, err error) {
	who := local.PeerUser(ctx)
	a.e.audit.Append(ctx, fleet.SiteAction{
		Verb: verb, Object: object, User: who.User, UID: who.UID, Person: who.Person, SiteCode: who.SiteCode, Reason: reason, Code: fleet.CodeOf(err),
	})
}

// CopyAudit implements local.Auditor.
func (a agent) CopyAudit(w io.Writer, after uint64) error { return a.e.audit.Copy(w, after) }

// personOf returns the user of the local API's client, with the reason of the request.
func personOf(ctx context.Context, reason string) allocs.Person {
	return allocs.Person{By: local.PeerOf(ctx), Reason: reason}
}

// resolveAllocID returns the id of the only allocation here whose id begins with short. None is a
// fleet.CodeNotFound, several are a fleet.CodeInvalid.
func (a agent) resolveAllocID(ctx context.Context, short fleet.AllocID) (fleet.AllocID, error) {
	if short == "" {
		return "", fleet.Errorf(fleet.CodeInvalid, "find an allocation: no id is given")
	}
	held, err := a.e.allocs.Status(ctx)
	if err != nil {
		return "", err
	}
	var found []fleet.AllocID
	for id := range held {
		if strings.HasPrefix(string(id), strings.ToLower(string(short))) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", fleet.Errorf(fleet.CodeNotFound, "no allocation on this edge has an id that begins with %q", short)
	case 1:
		return found[0], nil
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "%d allocations on this edge have an id that begins with %q", len(found), short).WithHint("give more of the id")
}

// openLogs opens a task's output for the local API or a hub. req.Task may be "" if there is only one task.
func (e *Edge) openLogs(ctx context.Context, id fleet.AllocID, req tasklog.Request) (*tasklog.Reader, error) {
	s, err := e.heldAllocStatus(ctx, id)
	if err != nil {
		return nil, err
	}
	if req.Task, err = findTaskName(s.Desired.Alloc, req.Task); err != nil {
		return nil, err
	}
	if err := checkLogsEnabled(s.Desired.Alloc.Group(), req.Task); err != nil {
		return nil, err
	}
	req.Dir = e.dir.File(allocsDir, string(id), "alloc", "logs")
	req.Ended = e.allocEnded(id)
	return tasklog.Open(ctx, req)
}

// checkLogsEnabled returns a fleet.CodeNotFound if the job disables the logs of a task of the group.
func checkLogsEnabled(g *fleet.TaskGroup, name string) error {
	if g == nil {
		return nil // the body is missing, but logs may exist
	}
	if t := g.Task(name); t == nil || !t.LogConfig.Disabled {
		return nil
	}
	return fleet.Errorf(fleet.CodeNotFound, "read logs: the job disables the logs of task %q", name).
		WithHint("its logs block has disabled = true or enabled = false")
}

// hasEnded reports whether an allocation has ended: the journal says so, or neither the journal nor the disk knows it.
func (e *Edge) hasEnded(id fleet.AllocID) bool {
	if s, ok := e.journal.State(id); ok {
		return s.Terminal()
	}
	_, err := os.Stat(e.dir.File(allocsDir, string(id)))
	return errors.Is(err, os.ErrNotExist)
}

// allocEnded returns a function that reports whether an allocation has ended.
func (e *Edge) allocEnded(id fleet.AllocID) func() bool {
	return func() bool {
		s, ok := e.journal.State(id)
		return ok && s.Terminal()
	}
}

// heldAllocStatus returns the status of a desired allocation of this edge, or a fleet.CodeNotFound.
func (e *Edge) heldAllocStatus(ctx context.Context, id fleet.AllocID) (allocs.Status, error) {
	all, err := e.allocs.Status(ctx)
	if err != nil {
		return allocs.Status{}, err
	}
	s, ok := all[id]
	if !ok {
		return allocs.Status{}, fleet.Errorf(fleet.CodeNotFound, "allocation %s is not on this edge", id)
	}
	return s, nil
}

// openAllocFiles answers a hub's request for files in an allocation's folder.
func (e *Edge) openAllocFiles(ctx context.Context, req syncproto.Request) (io.ReadCloser, error) {
	if _, err := e.heldAllocStatus(ctx, req.Alloc); err != nil {
		return nil, err
	}
	return files.Open(ctx, files.Request{
		Dir: e.dir.File(allocsDir, string(req.Alloc)), Kind: req.Kind, Path: req.Path, Offset: req.Offset, Limit: req.Limit,
		Ended: e.allocEnded(req.Alloc),
	})
}

// checkResults returns the results of an allocation's checks as JSON, for a hub.
func (e *Edge) checkResults(ctx context.Context, id fleet.AllocID) (io.ReadCloser, error) {
	if _, err := e.heldAllocStatus(ctx, id); err != nil {
		return nil, err
	}
	return openJSON(e.checks.Results(id))
}

// openJSON encodes an answer to a hub as JSON and returns a reader of it.
func openJSON(answer any) (io.ReadCloser, error) {
	b, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encode an answer to a hub: %w", err)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// streamAgentLogs returns a reader of the agent's log from now on, for a hub. It ends with ctx.
func (e *Edge) streamAgentLogs(ctx context.Context, req syncproto.Request) (io.ReadCloser, error) {
	level, err := logtap.ParseLevel(req.Level)
	if err != nil {
		return nil, err
	}
	lines, err := e.tap.Listen(level, req.JSON)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = lines.Close() })
	e.log.Debug("a client follows the log", "level", level)
	return lines, nil
}

// resourceUsage measures the usage of an allocation's tasks, or of the machine for "". It returns the result as JSON,
// for a hub.
func (e *Edge) resourceUsage(ctx context.Context, id fleet.AllocID, task string) (io.ReadCloser, error) {
	gauge, ok := e.describer.(Gauge)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeUnsupported, "this edge cannot measure usage")
	}
	if id == "" {
		host, err := gauge.Usage(ctx)
		if err != nil {
			return nil, err
		}
		return openJSON(host)
	}
	tasks, err := e.allocs.Usage(ctx, id, task, gauge.MHz())
	if err != nil {
		return nil, err
	}
	return openJSON(usage.OfAlloc(tasks, e.cfg.Now().UnixNano()))
}

// findTaskName returns the name of a task if the allocation has it. For "" it returns the only task. Otherwise the
// error names the tasks.
func findTaskName(a fleet.Alloc, name string) (string, error) {
	g := a.Group()
	switch {
	case g == nil:
		return name, nil // the body is missing, but logs may exist
	case name == "" && len(g.Tasks) == 1:
		return g.Tasks[0].Name, nil
	case name != "" && g.Task(name) != nil:
		return name, nil
	}
	names := make([]string, len(g.Tasks))
	for i, t := range g.Tasks {
		names[i] = t.Name
	}
	what := fmt.Sprintf("allocation %s has no task %q", fleet.Short(a.ID), name)
	if name == "" {
		what = fmt.Sprintf("allocation %s has %d tasks", fleet.Short(a.ID), len(names))
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "%s", what).WithHint("name one of: %s", strings.Join(names, ", "))
}
