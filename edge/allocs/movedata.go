package allocs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"skerry/edge/dataarchive"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/internal/durable"
)

// A replacement whose group has ephemeral_disk { migrate = true }, and whose predecessor was on another edge, waits for
// that one's data. A hub brings it (TakeData), or says why it is not there yet or never comes (NoData). It is written to a
// folder beside those of the allocations, which is renamed when all is there: a crash or a cut leaves nothing. If no hub
// says or brings anything for dataPatience, or dataAttempts copies fail, the replacement begins without the data.

// The journal keys of an allocation that waits for data, and of one that waits no more. No task can have such a name.
const (
	dataAwaitedKey = "/data-awaited"
	dataSettledKey = "/data-settled"
)

const (
	// dataPatience is longer than two intervals at which hubs say something of data that does not come yet.
	dataPatience = 15 * time.Minute
	dataAttempts = 5
	// dataOfferTime is how long an ended allocation keeps its data for a replacement on another edge, since its end or
	// since that was read last.
	dataOfferTime = time.Hour
	maxDataFiles  = 1 << 20 // folders and links included
	// incomingPrefix begins the names of folders with data that is not complete.
	incomingPrefix = ".incoming-"
)

// movingData is the data that comes to this edge, and that it offers to others.
type movingData struct {
	started time.Time

	mu      sync.Mutex
	heard   time.Time // a hub said or brought something
	awaited map[fleet.AllocID]*awaitedData
	offered map[fleet.AllocID]*offeredData
}

// awaitedData is the data that a replacement waits for.
type awaitedData struct {
	since  time.Time
	why    string // it is not here yet, as a hub says
	taking bool   // it is being written
	failed int    // copies that were not completed
}

// offeredData is the data of an ended allocation.
type offeredData struct {
	until    time.Time
	readers  int
	released bool // its replacement has it
}

func newMovingData() *movingData {
	return &movingData{started: time.Now(), awaited: map[fleet.AllocID]*awaitedData{}, offered: map[fleet.AllocID]*offeredData{}}
}

// awaitedBy returns the record of an allocation that waits. The caller holds mu.
func (m *movingData) awaitedBy(id fleet.AllocID) *awaitedData {
	d := m.awaited[id]
	if d == nil {
		d = &awaitedData{since: time.Now(), why: "no hub has said anything of it yet"}
		m.awaited[id] = d
	}
	return d
}

// noteHeard notes that a hub said why the data of an allocation does not come yet; "": it brings some.
func (m *movingData) noteHeard(id fleet.AllocID, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = time.Now()
	if why != "" {
		m.awaitedBy(id).why = why
	}
}

// silentFor returns for how long no hub has said or brought anything while an allocation waits, and why it waits. away is
// the time without a link, across reboots; it counts if there was none since this process began.
func (m *movingData) silentFor(id fleet.AllocID, away time.Duration) (silent time.Duration, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.awaitedBy(id)
	silent = min(time.Since(d.since), time.Since(m.heard))
	if away > time.Since(m.started) {
		silent = max(silent, away)
	}
	return silent, d.why
}

// isAwaited reports whether an allocation waits for data.
func (m *movingData) isAwaited(id fleet.AllocID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.awaited[id] != nil
}

// isTaking reports whether the data of an allocation is being written: TakeData journals what comes of it.
func (m *movingData) isTaking(id fleet.AllocID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.awaited[id]
	return d != nil && d.taking
}

// dropRecords drops what is known of an allocation.
func (m *movingData) dropRecords(id fleet.AllocID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.awaited, id)
	delete(m.offered, id)
}

// setTaking says that the data of an allocation is being written, or no more. false: it was being written already.
func (m *movingData) setTaking(id fleet.AllocID, taking bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.awaited[id]
	if d == nil || d.taking && taking {
		return d == nil && !taking
	}
	d.taking = taking
	return true
}

// predecessorElsewhere returns the allocation of another edge whose data an allocation needs that has not begun; "": none.
// If predecessors on this edge never began, it is theirs.
func predecessorElsewhere(desired map[fleet.AllocID]journal.DesiredAlloc, states map[fleet.AllocID]journal.State, w journal.DesiredAlloc) fleet.AllocID {
	g := w.Alloc.Group()
	if states[w.Alloc.ID].ClientStatus != "" || w.Stop || g == nil || !g.EphemeralDisk.Migrate {
		return ""
	}
	if here := dataSources(desired, states, w); len(here) > 0 {
		last := here[len(here)-1]
		if w = desired[last]; hasRun(states[last]) {
			return ""
		}
	}
	if _, here := desired[w.Alloc.PreviousAllocation]; here {
		return ""
	}
	return w.Alloc.PreviousAllocation
}

// awaitData returns why an allocation must wait for data of another edge, and how long until that may have changed; "": it
// need not wait.
func (a *Allocs) awaitData(ctx context.Context, desired map[fleet.AllocID]journal.DesiredAlloc, w journal.DesiredAlloc) (why string, again time.Duration, err error) {
	again = time.Hour
	id, from := w.Alloc.ID, predecessorElsewhere(desired, a.cfg.Journal.States(), w)
	if from == "" {
		return "", again, nil
	}
	awaited, settled, err := a.dataProgress(ctx, id)
	switch {
	case err != nil:
		return "its journal cannot be read", again, err
	case settled:
		return "", again, nil
	case a.hasFolder(id) && !a.moving.isTaking(id): // the agent ended between the renaming and its row
		if err := a.settleData(ctx, w, "has the data of allocation "+fleet.Short(from)+" of another edge"); err != nil {
			return "its journal cannot be written", again, err
		}
		return "", again, nil
	}
	silent, why := a.moving.silentFor(id, a.cfg.Journal.Away())
	if silent >= dataPatience {
		message := fmt.Sprintf("begins without the data of allocation %s: no hub has brought it, or said anything of it, for %s", fleet.Short(from), dataPatience)
		if err := a.settleData(ctx, w, message); err != nil {
			return "its journal cannot be written", again, err
		}
		return "", again, nil
	}
	why = fmt.Sprintf("waits for the data of allocation %s on another edge: %s. When no hub has said or brought anything for %s, it begins without the data", fleet.Short(from), why, dataPatience)
	if !awaited {
		err = a.cfg.Journal.PutHandle(ctx, id, dataAwaitedKey, []byte(from), dataRows(&w.Alloc, "waits for the data of allocation "+fleet.Short(from)+" on another edge")...)
		if err != nil {
			err = fmt.Errorf("record that allocation %s waits for data: %w", fleet.Short(id), err)
		}
	}
	return why, dataPatience - silent, err
}

// dataProgress returns whether the journal says that an allocation waits for data, and that it waits no more.
func (a *Allocs) dataProgress(ctx context.Context, id fleet.AllocID) (awaited, settled bool, err error) {
	handles, err := a.cfg.Journal.Handles(ctx, id)
	if err != nil {
		return false, false, fmt.Errorf("read whether allocation %s waits for data: %w", fleet.Short(id), err)
	}
	return handles[dataAwaitedKey] != nil, handles[dataSettledKey] != nil, nil
}

// settleData journals that an allocation waits for data no more, and says why.
func (a *Allocs) settleData(ctx context.Context, w journal.DesiredAlloc, message string) error {
	id := w.Alloc.ID
	if err := a.cfg.Journal.PutHandle(ctx, id, dataSettledKey, []byte{1}, dataRows(&w.Alloc, message)...); err != nil {
		return fmt.Errorf("record that allocation %s %s: %w", fleet.Short(id), message, err)
	}
	a.log.Info("allocation waits for data no more", "alloc_id", string(id), "reason", message)
	a.moving.dropRecords(id)
	a.TriggerReconcile()
	return nil
}

// dataRows returns a row that says something of an allocation's data, and the same as an event of each task.
func dataRows(alloc *fleet.Alloc, message string) []fleet.Transition {
	rows := []fleet.Transition{{Kind: fleet.TransitionAlloc, Alloc: alloc.ID, Message: message}}
	for _, t := range alloc.Group().Tasks {
		event := &fleet.TaskEvent{Type: fleet.TaskSetup, Time: time.Now().UnixNano(), DisplayMessage: message}
		rows = append(rows, fleet.Transition{Kind: fleet.TransitionTask, Alloc: alloc.ID, Task: t.Name, TaskState: &fleet.TaskState{State: fleet.TaskPending}, Event: event})
	}
	return rows
}

// findAwaiting returns an allocation that waits for data of another edge, and whose data that is.
func (a *Allocs) findAwaiting(ctx context.Context, id fleet.AllocID) (w journal.DesiredAlloc, from fleet.AllocID, err error) {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return w, "", err
	}
	w, known := desired[id]
	if !known || w.Alloc.Job == nil && !w.Stop {
		return w, "", fleet.Errorf(fleet.CodeNotFound, "bring data to allocation %s: this edge does not know it yet", fleet.Short(id))
	}
	from = predecessorElsewhere(desired, a.cfg.Journal.States(), w)
	_, settled, err := a.dataProgress(ctx, id)
	if err == nil && (from == "" || settled || a.hasFolder(id)) {
		err = fleet.Errorf(fleet.CodeConflict, "bring data to allocation %s: it does not wait for data of another edge", fleet.Short(id))
	}
	return w, from, err
}

// NoData tells an allocation that the data that it waits for does not come yet, or with wait false never, and why.
// fleet.CodeConflict: it does not wait for any. fleet.CodeNotFound: it is not known yet.
func (a *Allocs) NoData(ctx context.Context, id fleet.AllocID, why string, wait bool) error {
	w, from, err := a.findAwaiting(ctx, id)
	if err != nil {
		return err
	}
	why = why[:min(len(why), maxReason)]
	a.moving.noteHeard(id, why)
	if wait {
		a.TriggerReconcile()
		return nil
	}
	return a.settleData(ctx, w, fmt.Sprintf("begins without the data of allocation %s: %s", fleet.Short(from), why))
}

// maxReason bounds what a hub says of data, in bytes.
const maxReason = 1 << 10

// TakeData writes the data that an allocation waits for from r, an archive. It calls accepted once r may be sent. Errors
// are those of NoData, fleet.CodeUnavailable if it cannot be written now, or say why it was not completed.
func (a *Allocs) TakeData(ctx context.Context, id fleet.AllocID, accepted func() error, r io.Reader) error {
	w, from, err := a.findAwaiting(ctx, id)
	if err != nil {
		return err
	}
	if why := a.cfg.WhyFull(); why != "" {
		return fleet.Errorf(fleet.CodeUnavailable, "bring data to allocation %s: %s", fleet.Short(id), why)
	}
	a.moving.noteHeard(id, "a hub brings it")
	if !a.moving.setTaking(id, true) {
		return fleet.Errorf(fleet.CodeUnavailable, "bring data to allocation %s: it is being written already", fleet.Short(id))
	}
	defer a.moving.setTaking(id, false)
	a.TriggerReconcile()
	if err := accepted(); err != nil {
		return err
	}
	message, err := a.storeData(ctx, w, from, heardReader{r, a.moving, id})
	if err != nil {
		return a.noteFailedCopy(context.WithoutCancel(ctx), w, from, err)
	}
	return a.settleData(context.WithoutCancel(ctx), w, message)
}

// heardReader notes each part of the data that arrives.
type heardReader struct {
	io.Reader
	moving *movingData
	id     fleet.AllocID
}

func (h heardReader) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.moving.noteHeard(h.id, "")
	}
	return n, err
}

// storeData writes an archive into an allocation's folder, which it makes as a whole, and returns what to say of it.
func (a *Allocs) storeData(ctx context.Context, w journal.DesiredAlloc, from fleet.AllocID, r io.Reader) (message string, err error) {
	id := w.Alloc.ID
	incoming := filepath.Join(a.cfg.Dir, incomingPrefix+string(id))
	if err := os.RemoveAll(incoming); err != nil {
		return "", fmt.Errorf("remove what came before: %w", err)
	}
	if err := durable.MakeFolders(incoming, 0o700); err != nil {
		return "", fmt.Errorf("make the folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(incoming)) }()
	limits := dataarchive.Limits{Bytes: int64(w.Alloc.Group().EphemeralDisk.SizeMB) << 20, Entries: maxDataFiles}
	sum, err := dataarchive.Read(r, incoming, dataFolders(&w.Alloc), limits)
	if err == nil {
		err = durable.FlushFolder(incoming)
	}
	if err == nil {
		_, _, err = a.findAwaiting(ctx, id) // it may have been stopped meanwhile
	}
	if err == nil {
		err = durable.Rename(incoming, filepath.Join(a.cfg.Dir, string(id)))
	}
	message = fmt.Sprintf("has the data of allocation %s of another edge: %d files, %d bytes", fleet.Short(from), sum.Files, sum.Bytes)
	if sum.LeftOut > 0 {
		message += fmt.Sprintf("; left out: %d (special files, unreadable files, and links that lead outside)", sum.LeftOut)
	}
	return message, err
}

// noteFailedCopy journals why a copy was not completed, and that no other one is awaited if that is of no use. It returns
// the reason.
func (a *Allocs) noteFailedCopy(ctx context.Context, w journal.DesiredAlloc, from fleet.AllocID, reason error) error {
	id := w.Alloc.ID
	if _, _, err := a.findAwaiting(ctx, id); err != nil {
		return reason // it waits no more
	}
	a.moving.mu.Lock()
	d := a.moving.awaitedBy(id)
	d.failed++
	failed := d.failed
	a.moving.mu.Unlock()
	if fleet.CodeOf(reason) == fleet.CodeInvalid || failed >= dataAttempts {
		message := fmt.Sprintf("begins without the data of allocation %s, which stays on its edge for now: %v", fleet.Short(from), reason)
		return errors.Join(reason, a.settleData(ctx, w, message))
	}
	message := fmt.Sprintf("copy %d of %d of the data of allocation %s was not completed: %v", failed, dataAttempts, fleet.Short(from), reason)
	if err := a.cfg.Journal.Record(ctx, dataRows(&w.Alloc, message)...); err != nil {
		return errors.Join(reason, fmt.Errorf("record that: %w", err))
	}
	return reason
}

// removeIncomplete removes the data that was not complete when the agent ended.
func (a *Allocs) removeIncomplete() {
	found, err := filepath.Glob(filepath.Join(a.cfg.Dir, incomingPrefix+"*"))
	for _, path := range found {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		a.log.Warn("incomplete data of other edges not removed", "error", err)
	}
}

// dataFolders returns the data folders of an allocation, relative to its own.
func dataFolders(alloc *fleet.Alloc) []string {
	parts := []string{filepath.Join("alloc", "data")}
	for _, t := range alloc.Group().Tasks {
		parts = append(parts, filepath.Join(t.Name, "local"))
	}
	return parts
}

// OpenData returns the data of an ended allocation as an archive, for its replacement on another edge. Of one that never
// began it is the data that it would have taken over. fleet.CodeNotFound: there is none here. fleet.CodeConflict: it has
// not ended.
func (a *Allocs) OpenData(ctx context.Context, id fleet.AllocID) (io.ReadCloser, error) {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return nil, err
	}
	states := a.cfg.Journal.States()
	w, known := desired[id]
	if known && (a.activeAllocOf(id) != nil || !states[id].Terminal()) {
		return nil, fleet.Errorf(fleet.CodeConflict, "send the data of allocation %s: it has not ended", fleet.Short(id))
	}
	var parts []dataarchive.Part
	if known && w.Alloc.Group() != nil {
		parts = a.findData(desired, states, w)
	}
	if len(parts) == 0 {
		return nil, fleet.Errorf(fleet.CodeNotFound, "send the data of allocation %s: this edge has none of it", fleet.Short(id))
	}
	a.moving.noteReader(id, 1)
	r, to := io.Pipe()
	s := &sentData{PipeReader: r}
	s.writing.Go(func() {
		defer a.moving.noteReader(id, -1)
		buffered := bufio.NewWriterSize(to, 64<<10)
		err := dataarchive.Write(buffered, parts)
		if err == nil {
			err = buffered.Flush()
		}
		_ = to.CloseWithError(err) // it never fails
	})
	return s, nil
}

// sentData is data that is being read. Close ends its writer.
type sentData struct {
	*io.PipeReader
	writing sync.WaitGroup
}

func (s *sentData) Close() error {
	err := s.PipeReader.Close()
	s.writing.Wait()
	return err
}

// findData returns the data folders of an allocation that exist, or of the one before if it has not run.
func (a *Allocs) findData(desired map[fleet.AllocID]journal.DesiredAlloc, states map[fleet.AllocID]journal.State, w journal.DesiredAlloc) (parts []dataarchive.Part) {
	holders := []fleet.AllocID{w.Alloc.ID}
	if !hasRun(states[w.Alloc.ID]) {
		holders = append(holders, dataSources(desired, states, w)...)
	}
	for _, name := range dataFolders(&w.Alloc) {
		i := slices.IndexFunc(holders, func(id fleet.AllocID) bool {
			info, err := os.Lstat(filepath.Join(a.cfg.Dir, string(id), name))
			return err == nil && info.IsDir()
		})
		if i >= 0 {
			parts = append(parts, dataarchive.Part{Name: filepath.ToSlash(name), Dir: filepath.Join(a.cfg.Dir, string(holders[i]), name)})
		}
	}
	return parts
}

// noteReader notes that a reader of an allocation's data began (1) or ended (-1): it is kept for some more time.
func (m *movingData) noteReader(id fleet.AllocID, change int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.offered[id] == nil {
		m.offered[id] = &offeredData{}
	}
	o := m.offered[id]
	o.readers += change
	o.until, o.released = time.Now().Add(dataOfferTime), o.released && change < 0
}

// ReleaseData says that the replacement of an ended allocation has its data: this edge may remove it.
func (a *Allocs) ReleaseData(id fleet.AllocID) {
	a.moving.mu.Lock()
	defer a.moving.mu.Unlock()
	if o := a.moving.offered[id]; o != nil {
		o.released = true
	}
}

// keepsData reports whether the data of an ended allocation is kept for a replacement on another edge. One that was
// completed, and not stopped, has no replacement.
func (a *Allocs) keepsData(w journal.DesiredAlloc, s journal.State) bool {
	g := w.Alloc.Group()
	if g == nil || !g.EphemeralDisk.Migrate || !s.Terminal() || s.ClientStatus == fleet.ClientComplete && !w.Stop {
		return false
	}
	if len(a.findData(nil, nil, w)) == 0 {
		return false
	}
	a.moving.mu.Lock()
	defer a.moving.mu.Unlock()
	o := a.moving.offered[w.Alloc.ID]
	if o == nil {
		o = &offeredData{until: time.Now().Add(dataOfferTime)}
		a.moving.offered[w.Alloc.ID] = o
	}
	return !o.released && (o.readers > 0 || time.Now().Before(o.until))
}
