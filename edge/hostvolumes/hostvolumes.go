// Package hostvolumes makes and deletes the dynamic host volumes of an edge for its hub.
//
// edge.Open makes a Keeper, passes it the volumes that a hub delivers, and offers the ready ones to the tasks. Run is
// its only goroutine. Accept journals the hub's wish before it returns. The result of a step is journaled together
// with its row, so a crash repeats the step. A folder is deleted only if a hub says so and no allocation uses it.
// The folders of mkdir are below Config.Dir; the folder of a registered volume is anywhere, and is never deleted.
package hostvolumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/durable"
	"skerry/syncproto"
)

// Journal is the part of the edge's journal that a Keeper uses.
type Journal interface {
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// Config of a Keeper. All fields but Retry are required.
type Config struct {
	Journal Journal
	Dir     string // holds the folders that the plugin mkdir makes
	// Used reports whether an allocation that has not ended uses the volume of that name.
	Used  func(ctx context.Context, namespace, name string) (bool, error)
	Retry time.Duration // pause before an unfinished step is tried again; 0 means 5 s
	Log   *slog.Logger
}

const (
	defaultRetry = 5 * time.Second
	// keyPrefix begins the journal keys of volumes, which belong to no allocation.
	keyPrefix     = "volume/"
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	// maxVolumes bounds the volumes that an edge keeps; a hub gives it at most 100.
	maxVolumes = 1000
	maxRecord  = 256 << 10
)

// record is the journal's record of one volume.
type record struct {
	Version int                     `cbor:"1,keyasint"`
	Wanted  syncproto.DesiredVolume `cbor:"2,keyasint"`
	Ready   bool                    `cbor:"3,keyasint,omitempty"`
	Failure string                  `cbor:"4,keyasint,omitempty"` // the last reported failure
}

// Keeper makes and deletes volumes. Its methods may be called from any goroutine.
type Keeper struct {
	cfg  Config
	wake chan struct{} // capacity 1

	recording sync.Mutex // held from reading a record until its successor is journaled
	mu        sync.Mutex
	records   map[fleet.VolumeID]record
}

// Open makes the Keeper and reads the volumes from the journal.
func Open(cfg Config) (*Keeper, error) {
	if cfg.Retry == 0 {
		cfg.Retry = defaultRetry
	}
	k := &Keeper{cfg: cfg, wake: make(chan struct{}, 1), records: map[fleet.VolumeID]record{}}
	held, err := cfg.Journal.Handles(context.Background(), noAlloc)
	if err != nil {
		return nil, fmt.Errorf("read the host volumes of this edge: %w", err)
	}
	for key, raw := range held {
		id, ours := strings.CutPrefix(key, keyPrefix)
		if !ours {
			continue
		}
		r, err := decodeRecord(raw)
		if err == nil && r.Wanted.ID != fleet.VolumeID(id) {
			err = fmt.Errorf("it is the record of volume %.64q", r.Wanted.ID)
		}
		if err != nil {
			cfg.Log.Error("record of a host volume not readable: the hub will deliver it again", "volume_id", id, "error", err)
			continue
		}
		k.records[fleet.VolumeID(id)] = r
	}
	return k, nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 8, Elements: 1000, Pairs: 1000})

// decodeRecord decodes a record and checks its version and id.
func decodeRecord(raw []byte) (record, error) {
	var r record
	if len(raw) > maxRecord {
		return r, fmt.Errorf("decode a volume: the record has %d bytes, more than %d", len(raw), maxRecord)
	}
	if err := decoder.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("decode a volume: %w", err)
	}
	if r.Version != recordVersion {
		return r, fmt.Errorf("decode a volume: the record has version %d, this program reads version %d", r.Version, recordVersion)
	}
	if !validID(r.Wanted.ID) {
		return r, fmt.Errorf("decode a volume: the record has the id %.64q, which cannot name a folder", r.Wanted.ID)
	}
	return r, nil
}

// validID reports whether the id can name a folder and is no path.
func validID(id fleet.VolumeID) bool {
	return id != "" && len(id) <= 64 && filepath.IsLocal(string(id)) && !strings.ContainsAny(string(id), `/\.`)
}

// Accept journals the volumes that a hub delivers. Volumes that are not among them stay as they are.
func (k *Keeper) Accept(ctx context.Context, wanted []syncproto.DesiredVolume) error {
	for _, w := range wanted {
		if err := k.acceptVolume(ctx, w); err != nil {
			return err
		}
	}
	k.Wake()
	return nil
}

// acceptVolume journals one delivered volume.
func (k *Keeper) acceptVolume(ctx context.Context, w syncproto.DesiredVolume) error {
	k.recording.Lock()
	defer k.recording.Unlock()
	k.mu.Lock()
	before, known := k.records[w.ID]
	full := !known && len(k.records) >= maxVolumes
	k.mu.Unlock()
	if full || !validID(w.ID) {
		k.cfg.Log.Error("host volume of a hub ignored: it has no valid id, or there are too many", "volume_id", string(w.ID), "volumes", maxVolumes)
		return nil
	}
	next := record{Version: recordVersion, Wanted: w, Ready: before.Ready && !w.Pending && sameVolume(before.Wanted, w), Failure: before.Failure}
	if w.Pending || !known {
		next.Failure = "" // a failure of the new delivery is reported even if it is the same
	}
	return k.journalRecord(ctx, next)
}

// recordStep journals the outcome of a step with its row. It does nothing if a hub wants something else by now.
func (k *Keeper) recordStep(ctx context.Context, did record, row fleet.Transition) error {
	k.recording.Lock()
	defer k.recording.Unlock()
	k.mu.Lock()
	now := k.records[did.Wanted.ID]
	k.mu.Unlock()
	if now.Wanted.Delete != did.Wanted.Delete || !sameVolume(now.Wanted, did.Wanted) {
		return nil // Accept has woken Run
	}
	now.Ready, now.Failure = did.Ready, did.Failure
	now.Wanted.Pending = did.Wanted.Pending
	return k.journalRecord(ctx, now, row)
}

// sameVolume reports whether two deliveries want the same folder.
func sameVolume(a, b syncproto.DesiredVolume) bool {
	return a.Path == b.Path && a.Plugin == b.Plugin && maps.Equal(a.Parameters, b.Parameters)
}

// journalRecord journals a record with rows.
func (k *Keeper) journalRecord(ctx context.Context, r record, rows ...fleet.Transition) error {
	raw, err := codec.Marshal(r)
	if err == nil {
		err = k.cfg.Journal.PutHandle(ctx, noAlloc, keyPrefix+string(r.Wanted.ID), raw, rows...)
	}
	if err != nil {
		return fmt.Errorf("journal host volume %s: %w", r.Wanted.Name, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records[r.Wanted.ID] = r
	return nil
}

// Wake makes Run process the volumes now. It does not wait.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Offered returns the volumes that tasks may use, by name.
func (k *Keeper) Offered() map[string]fleet.HostVolume {
	k.mu.Lock()
	defer k.mu.Unlock()
	offered := map[string]fleet.HostVolume{}
	newest := map[string]fleet.Index{}
	for id, r := range k.records {
		if name := r.Wanted.Name; r.Ready && r.Wanted.ModifyIndex >= newest[name] {
			newest[name] = r.Wanted.ModifyIndex
			offered[name] = fleet.HostVolume{Path: k.pathOf(r.Wanted), ID: id}
		}
	}
	return offered
}

// pathOf returns the path of a volume's folder.
func (k *Keeper) pathOf(w syncproto.DesiredVolume) string {
	if w.Path != "" {
		return w.Path
	}
	return filepath.Join(k.cfg.Dir, string(w.ID))
}

// Run makes and deletes volumes until ctx ends. It always returns nil.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if !k.settleVolumes(ctx) {
			again = time.After(k.cfg.Retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-again:
		}
	}
}

// settleVolumes makes and deletes the volumes that need it, and reports whether none is left.
func (k *Keeper) settleVolumes(ctx context.Context) bool {
	k.mu.Lock()
	todo := map[fleet.VolumeID]record{}
	for id, r := range k.records {
		if r.Wanted.Delete || !r.Ready {
			todo[id] = r
		}
	}
	k.mu.Unlock()
	done := true
	for _, id := range slices.Sorted(maps.Keys(todo)) {
		r := todo[id]
		step, what := k.makeVolume, "make"
		if r.Wanted.Delete {
			step, what = k.deleteVolume, "delete"
		}
		if err := step(ctx, r); err != nil {
			done = false
			k.reportFailure(ctx, r, fmt.Sprintf("%s host volume %s: %v", what, r.Wanted.Name, err))
		}
	}
	return done
}

// makeVolume makes the folder of a volume, or checks that the folder of a registered one exists. It reports the volume
// as ready.
func (k *Keeper) makeVolume(ctx context.Context, r record) error {
	path := k.pathOf(r.Wanted)
	if r.Wanted.Path == "" {
		if err := makeFolder(path, r.Wanted.Parameters); err != nil {
			return err
		}
	} else if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a folder of this edge", path)
	}
	r.Ready, r.Failure = true, ""
	r.Wanted.Pending = false
	return k.recordStep(ctx, r, fleet.Transition{
		Kind: fleet.TransitionVolume, Message: fmt.Sprintf("host volume %s is ready", r.Wanted.Name),
		Volume: &fleet.VolumeReport{ID: r.Wanted.ID, State: fleet.VolumeReady, Path: path},
	})
}

// makeFolder makes a folder like Nomad's plugin mkdir, with the parameters mode, uid and gid.
func makeFolder(path string, parameters map[string]string) error {
	mode, uid, gid := uint64(0o700), int64(-1), int64(-1)
	for name, into := range map[string]*int64{"uid": &uid, "gid": &gid} {
		if s := parameters[name]; s != "" {
			n, err := strconv.ParseUint(s, 10, 31)
			if err != nil {
				return fmt.Errorf("parameter %s: %w", name, err)
			}
			*into = int64(n)
		}
	}
	if s := parameters["mode"]; s != "" {
		n, err := strconv.ParseUint(s, 8, 9)
		if err != nil {
			return fmt.Errorf("parameter mode: %w", err)
		}
		mode = n
	}
	if err := durable.MakeFolders(filepath.Dir(path), 0o711); err != nil {
		return err
	}
	if err := durable.MakeFolders(path, os.FileMode(mode)); err != nil {
		return err
	}
	if uid >= 0 || gid >= 0 {
		if err := os.Chown(path, int(uid), int(gid)); err != nil {
			return err
		}
	}
	return os.Chmod(path, os.FileMode(mode)) // the umask may have narrowed it
}

// deleteVolume deletes a volume that no allocation uses, and reports it. The folder of a registered volume stays.
func (k *Keeper) deleteVolume(ctx context.Context, r record) error {
	used, err := k.cfg.Used(ctx, r.Wanted.Namespace, r.Wanted.Name)
	switch {
	case err != nil:
		return err
	case used:
		return errors.New("an allocation on this edge uses it")
	}
	message := fmt.Sprintf("host volume %s is deleted, its folder stays", r.Wanted.Name)
	if r.Wanted.Path == "" {
		message = fmt.Sprintf("host volume %s is deleted", r.Wanted.Name)
		if err := os.RemoveAll(k.pathOf(r.Wanted)); err != nil {
			return err
		}
	}
	row := fleet.Transition{Kind: fleet.TransitionVolume, Message: message, Volume: &fleet.VolumeReport{ID: r.Wanted.ID, State: fleet.VolumeDeleted}}
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, keyPrefix+string(r.Wanted.ID), nil, row); err != nil {
		return fmt.Errorf("journal the end of host volume %s: %w", r.Wanted.Name, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.records, r.Wanted.ID)
	return nil
}

// reportFailure journals why a step failed, once for each reason. Run tries the step again.
func (k *Keeper) reportFailure(ctx context.Context, r record, why string) {
	if r.Failure == why || ctx.Err() != nil {
		return
	}
	k.cfg.Log.Warn("host volume not settled: trying again", "volume_id", string(r.Wanted.ID), "error", why)
	r.Failure = why
	state := fleet.VolumePending
	if r.Ready {
		state = fleet.VolumeReady
	}
	row := fleet.Transition{
		Kind: fleet.TransitionVolume, Message: why,
		Volume: &fleet.VolumeReport{ID: r.Wanted.ID, State: state, Path: k.pathOf(r.Wanted)},
	}
	if err := k.recordStep(ctx, r, row); err != nil {
		k.cfg.Log.Error("failure of a host volume not journaled", "error", err)
	}
}
