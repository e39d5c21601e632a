// Package prefetch has an edge fetch the artifacts and images of jobs before allocations need them, as its hub says.
//
// edge.Open makes a Keeper and gives it the requests of a hub. Run is its only goroutine: it fetches for one job at a
// time, and tries again with growing pauses. A request is journaled before Accept returns, and its state together with
// the row that reports it, so that an edge continues after a restart. Contents keeps the contents and their pins.
package prefetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/syncproto"
)

// Journal is the part of the edge's journal that a Keeper uses.
type Journal interface {
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// Contents fetches and keeps the artifacts and images of jobs.
type Contents interface {
	// Fetch fetches the artifacts and images of the groups of a job that can run on this node, unless they are here,
	// and returns a summary of them. They are kept for owner until Release.
	Fetch(ctx context.Context, owner string, job *fleet.Job) (summary string, err error)
	// Release ends the keeping for owner.
	Release(owner string) error
	// Owners lists the owners for whom contents are kept.
	Owners() []string
}

// Config of a Keeper. All fields but the delays and Contents are required.
type Config struct {
	Journal  Journal
	Contents Contents // nil: each prefetch fails with a reason
	// MinDelay and MaxDelay bound the pause after a failure; 0: 10 s and 10 min.
	MinDelay, MaxDelay time.Duration
	Log                *slog.Logger
}

const (
	defaultMinDelay = 10 * time.Second
	defaultMaxDelay = 10 * time.Minute
	// keyPrefix begins the journal's keys of prefetches. They belong to no allocation.
	keyPrefix     = "prefetch/"
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	// maxPrefetches bounds the records of an edge. A hub requests at most 20 prefetches of it.
	maxPrefetches = 40
	maxRecord     = syncproto.MaxFrame
	maxFailure    = 2 << 10
)

// record is one prefetch in the journal.
type record struct {
	Version int                       `cbor:"1,keyasint"`
	Wanted  syncproto.DesiredPrefetch `cbor:"2,keyasint"`
	State   string                    `cbor:"3,keyasint,omitempty"` // reported last
	Message string                    `cbor:"4,keyasint,omitempty"` // reported last
}

// contentsOwner returns the name under which the contents of a record are kept: they belong to one version of a job.
func (r *record) contentsOwner() string {
	sum := sha256.Sum256([]byte(string(r.Wanted.ID) + "\x00" + r.Wanted.JobHash))
	return hex.EncodeToString(sum[:16])
}

// attempt says when a record that is not settled is tried again.
type attempt struct {
	failures int
	due      time.Time
}

// Keeper fetches what jobs need. Its methods may be called from any goroutine.
type Keeper struct {
	cfg  Config
	wake chan struct{} // capacity 1

	recording sync.Mutex // held from reading a record until its successor is journaled
	mu        sync.Mutex
	records   map[fleet.PrefetchID]record
	attempts  map[fleet.PrefetchID]attempt // of the records that are not settled
	running   fleet.PrefetchID             // the record for which Run fetches now; "": none
	cancel    context.CancelFunc           // of that fetch
}

// Open makes the Keeper and reads the prefetches from the journal. Finished ones are checked again.
func Open(cfg Config) (*Keeper, error) {
	cfg.MinDelay, cfg.MaxDelay = cmp.Or(cfg.MinDelay, defaultMinDelay), cmp.Or(cfg.MaxDelay, defaultMaxDelay)
	k := &Keeper{
		cfg: cfg, wake: make(chan struct{}, 1),
		records: map[fleet.PrefetchID]record{}, attempts: map[fleet.PrefetchID]attempt{},
	}
	held, err := cfg.Journal.Handles(context.Background(), noAlloc)
	if err != nil {
		return nil, fmt.Errorf("read the prefetches of this edge: %w", err)
	}
	for key, raw := range held {
		id, ours := strings.CutPrefix(key, keyPrefix)
		if !ours {
			continue
		}
		r, err := decodeRecord(raw)
		if err == nil && r.Wanted.ID != fleet.PrefetchID(id) {
			err = fmt.Errorf("it has the record of prefetch %.64q", r.Wanted.ID)
		}
		if err != nil {
			cfg.Log.Error("record of a prefetch not readable: request it again", "prefetch_id", id, "error", err)
			continue
		}
		k.records[r.Wanted.ID], k.attempts[r.Wanted.ID] = r, attempt{}
	}
	return k, nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 8, Elements: 1000, Pairs: 1000})

// decodeRecord decodes a record of the journal.
func decodeRecord(raw []byte) (record, error) {
	var r record
	if len(raw) > maxRecord {
		return r, fmt.Errorf("decode a prefetch: %d bytes", len(raw))
	}
	if err := decoder.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("decode a prefetch: %w", err)
	}
	if r.Version != recordVersion || r.Wanted.ID == "" {
		return r, fmt.Errorf("decode a prefetch: version %d, id %.64q", r.Version, r.Wanted.ID)
	}
	return r, nil
}

// Accept journals the requests of a hub to fetch contents or to let them go. Other prefetches stay as they are.
func (k *Keeper) Accept(ctx context.Context, wanted []syncproto.DesiredPrefetch) error {
	for _, w := range wanted {
		if err := k.acceptPrefetch(ctx, w); err != nil {
			return err
		}
	}
	if len(wanted) > 0 {
		k.wakeRun()
	}
	return nil
}

// acceptPrefetch journals the request of a hub for one prefetch. A request that is journaled already changes nothing.
func (k *Keeper) acceptPrefetch(ctx context.Context, w syncproto.DesiredPrefetch) error {
	k.recording.Lock()
	defer k.recording.Unlock()
	k.mu.Lock()
	before, known := k.records[w.ID]
	full := !known && !w.Delete && len(k.records) >= maxPrefetches
	k.mu.Unlock()
	switch {
	case w.ID == "" || full:
		k.cfg.Log.Error("prefetch of a hub ignored: it has no id, or this edge has too many prefetches", "prefetch_id", string(w.ID), "prefetches", maxPrefetches)
		return nil
	case known && w.RequestIndex == before.Wanted.RequestIndex:
		return nil
	case w.Job == nil && w.JobHash == before.Wanted.JobHash:
		w.Job = before.Wanted.Job
	}
	if err := k.journalRecord(ctx, record{Version: recordVersion, Wanted: w}); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attempts[w.ID] = attempt{}
	if k.running == w.ID {
		k.cancel()
	}
	return nil
}

// wakeRun makes Run check the prefetches now. It does not wait.
func (k *Keeper) wakeRun() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// journalRecord journals a record with rows.
func (k *Keeper) journalRecord(ctx context.Context, r record, rows ...fleet.Transition) error {
	raw, err := codec.Marshal(r)
	if err == nil {
		err = k.cfg.Journal.PutHandle(ctx, noAlloc, keyPrefix+string(r.Wanted.ID), raw, rows...)
	}
	if err != nil {
		return fmt.Errorf("journal the prefetch of job %s: %w", r.Wanted.JobID, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records[r.Wanted.ID] = r
	return nil
}

// Jobs returns the jobs whose contents are kept or shall be fetched. A job that cannot be decoded needs none.
func (k *Keeper) Jobs() []*fleet.Job {
	k.mu.Lock()
	defer k.mu.Unlock()
	var jobs []*fleet.Job
	for _, id := range slices.Sorted(maps.Keys(k.records)) {
		r := k.records[id]
		if r.Wanted.Delete || r.Wanted.Job == nil {
			continue
		}
		if job, err := syncproto.DecodeJob(r.Wanted.Job); err == nil {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// Run fetches until ctx ends. It always returns nil.
func (k *Keeper) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		k.releaseUnowned()
		id, due := k.nextAttempt()
		if id != "" && !time.Now().Before(due) {
			k.settlePrefetch(ctx, id)
			continue
		}
		var timer <-chan time.Time
		if id != "" {
			timer = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer:
		}
	}
	return nil
}

// releaseUnowned lets go the contents of each version of a job that has no record, or whose record is being deleted.
func (k *Keeper) releaseUnowned() {
	if k.cfg.Contents == nil {
		return
	}
	k.mu.Lock()
	owners := map[string]bool{}
	for _, r := range k.records {
		owners[r.contentsOwner()] = !r.Wanted.Delete
	}
	k.mu.Unlock()
	for _, owner := range k.cfg.Contents.Owners() {
		if owners[owner] {
			continue
		}
		if err := k.cfg.Contents.Release(owner); err != nil {
			k.cfg.Log.Warn("contents of an ended prefetch not let go", "error", err)
		}
	}
}

// nextAttempt returns the record that is due first, or "" if all are settled.
func (k *Keeper) nextAttempt() (id fleet.PrefetchID, due time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, other := range slices.Sorted(maps.Keys(k.attempts)) {
		if a := k.attempts[other]; id == "" || a.due.Before(due) {
			id, due = other, a.due
		}
	}
	return id, due
}

// settlePrefetch fetches the contents of a record, or removes a record that the hub has ended.
func (k *Keeper) settlePrefetch(ctx context.Context, id fleet.PrefetchID) {
	k.mu.Lock()
	r := k.records[id]
	fetching, cancel := context.WithCancel(ctx)
	defer cancel()
	k.running, k.cancel = id, cancel
	k.mu.Unlock()
	err := k.advanceRecord(fetching, r)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running, k.cancel = "", nil
	now, there := k.records[id]
	switch {
	case ctx.Err() != nil, there && now.Wanted.RequestIndex != r.Wanted.RequestIndex: // another request: it is due
	case err == nil:
		delete(k.attempts, id)
	default:
		failures := k.attempts[id].failures + 1
		k.attempts[id] = attempt{failures, time.Now().Add(retryDelay(failures, k.cfg.MinDelay, k.cfg.MaxDelay, rand.Float64()))}
	}
}

// retryDelay returns the pause after a number of failures: it doubles from least to most, and is shortened by up to a
// half at random, so that the edges of a fleet do not ask a server all at once.
func retryDelay(failures int, least, most time.Duration, random float64) time.Duration {
	d := most
	if shift := failures - 1; shift < 30 && least<<shift < most {
		d = least << shift
	}
	return d - time.Duration(random*float64(d)/2)
}

// advanceRecord fetches the contents of a record or forgets it, as the hub requests, and journals the result.
func (k *Keeper) advanceRecord(ctx context.Context, r record) error {
	if r.Wanted.Delete {
		return k.forgetRecord(ctx, r)
	}
	if r.State == "" {
		if err := k.reportState(ctx, &r, fleet.PrefetchFetching, ""); err != nil {
			return err
		}
	}
	summary, err := k.fetchContents(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		k.cfg.Log.Warn("contents of a job not fetched: trying again", "job_id", string(r.Wanted.JobID), "error", err)
		why := strings.ReplaceAll(err.Error(), "\n", "; ")
		why = strings.ToValidUTF8(why[:min(len(why), maxFailure)], "")
		return errors.Join(err, k.reportState(ctx, &r, fleet.PrefetchFailed, why))
	}
	return k.reportState(ctx, &r, fleet.PrefetchDone, summary)
}

// fetchContents fetches the artifacts and images of a record's job.
func (k *Keeper) fetchContents(ctx context.Context, r record) (string, error) {
	if k.cfg.Contents == nil {
		return "", fleet.Errorf(fleet.CodeUnsupported, "this node cannot fetch before a rollout: it has no store")
	}
	if r.Wanted.Job == nil {
		return "", fleet.Errorf(fleet.CodeInvalid, "the hub has not sent the job").WithHint("request it again")
	}
	job, err := syncproto.DecodeJob(r.Wanted.Job)
	if err != nil {
		return "", err
	}
	return k.cfg.Contents.Fetch(ctx, r.contentsOwner(), job)
}

// reportState journals the state of a record with a row that reports it, unless the last report was the same or a hub
// has sent another request since.
func (k *Keeper) reportState(ctx context.Context, r *record, state, message string) error {
	if r.State == state && r.Message == message {
		return nil
	}
	k.recording.Lock()
	defer k.recording.Unlock()
	if k.isReplaced(*r) {
		return nil
	}
	r.State, r.Message = state, message
	return k.journalRecord(ctx, *r, rowOf(*r, state, message))
}

// isReplaced reports whether a hub has sent another request since a record was read.
func (k *Keeper) isReplaced(r record) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.records[r.Wanted.ID].Wanted.RequestIndex != r.Wanted.RequestIndex
}

func rowOf(r record, state, message string) fleet.Transition {
	return fleet.Transition{
		Kind: fleet.TransitionPrefetch, Message: message,
		Prefetch: &fleet.PrefetchReport{ID: r.Wanted.ID, RequestIndex: r.Wanted.RequestIndex, State: state},
	}
}

// forgetRecord removes a record whose contents were let go, with a row that reports this.
func (k *Keeper) forgetRecord(ctx context.Context, r record) error {
	k.recording.Lock()
	defer k.recording.Unlock()
	if k.isReplaced(r) {
		return nil
	}
	row := rowOf(r, "", fmt.Sprintf("contents of job %s are let go", r.Wanted.JobID))
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, keyPrefix+string(r.Wanted.ID), nil, row); err != nil {
		return fmt.Errorf("journal the end of the prefetch of job %s: %w", r.Wanted.JobID, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.records, r.Wanted.ID)
	return nil
}
