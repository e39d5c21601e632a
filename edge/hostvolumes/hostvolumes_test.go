package hostvolumes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/edge/hostvolumes"
	"skerry/fleet"
	"skerry/syncproto"
)

// fakeJournal is a Journal in memory.
type fakeJournal struct {
	mu      sync.Mutex
	handles map[string][]byte
	rows    []fleet.Transition
	fail    error
}

func (j *fakeJournal) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	if handle == nil {
		delete(j.handles, key)
	} else {
		j.handles[key] = handle
	}
	j.rows = append(j.rows, ts...)
	return nil
}

func (j *fakeJournal) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.handles), nil
}

// keeperTest is a Keeper that runs.
type keeperTest struct {
	*testing.T
	journal *fakeJournal
	dir     string
	keeper  *hostvolumes.Keeper
	stop    func()

	mu     sync.Mutex
	used   bool
	onUsed func() // called once, when the Keeper asks whether a volume is used
}

func newKeeperTest(t *testing.T) *keeperTest {
	k := &keeperTest{T: t, journal: &fakeJournal{handles: map[string][]byte{}}, dir: t.TempDir()}
	k.run()
	t.Cleanup(func() { k.stop() })
	return k
}

// run starts a Keeper, as a restarted agent does.
func (k *keeperTest) run() {
	k.Helper()
	keeper, err := hostvolumes.Open(hostvolumes.Config{
		Journal: k.journal, Dir: filepath.Join(k.dir, "volumes"), Retry: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Used: func(context.Context, string, string) (bool, error) {
			k.mu.Lock()
			used, then := k.used, k.onUsed
			k.onUsed = nil
			k.mu.Unlock()
			if then != nil {
				then()
			}
			return used, nil
		},
	})
	if err != nil {
		k.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	var once sync.Once
	k.keeper, k.stop = keeper, func() { once.Do(func() { cancel(); <-ended }) }
}

func (k *keeperTest) accept(v syncproto.DesiredVolume) {
	k.Helper()
	if err := k.keeper.Accept(k.Context(), []syncproto.DesiredVolume{v}); err != nil {
		k.Fatal(err)
	}
}

func (k *keeperTest) setUsed(used bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = used
}

// rows are the states and texts of the volumes that the edge has journaled.
func (k *keeperTest) rows() []string {
	k.journal.mu.Lock()
	defer k.journal.mu.Unlock()
	var out []string
	for _, r := range k.journal.rows {
		out = append(out, fmt.Sprintf("%s %s: %s", r.Volume.ID, r.Volume.State, r.Message))
	}
	return out
}

// wantRows waits until the edge has said as much, and checks the beginnings of its rows.
func (k *keeperTest) wantRows(want ...string) {
	k.Helper()
	k.eventually(func() bool { return len(k.rows()) >= len(want) })
	got := k.rows()
	for i, w := range want {
		if len(got) != len(want) || !strings.HasPrefix(got[i], w) {
			k.Fatalf("rows %q, want %q", got, want)
		}
	}
}

func (k *keeperTest) eventually(done func() bool) {
	k.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !done(); <-tick.C {
		if time.Now().After(deadline) {
			k.Fatalf("not within two minutes; rows %q, offered %v", k.rows(), k.keeper.Offered())
		}
	}
}

func wanted(id fleet.VolumeID) syncproto.DesiredVolume {
	return syncproto.DesiredVolume{
		ID: id, Namespace: "default", Name: "data", Plugin: fleet.VolumePluginMkdir, Parameters: map[string]string{"mode": "0750"}, Pending: true, ModifyIndex: 1,
	}
}

func TestVolumeIsMadeAndDeleted(t *testing.T) {
	k := newKeeperTest(t)
	path := filepath.Join(k.dir, "volumes", "v1")
	k.accept(wanted("v1"))
	k.wantRows("v1 ready: host volume data is ready")
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o750 {
		t.Fatalf("%v, %v", info, err)
	}
	if got := k.keeper.Offered(); got["data"] != (fleet.HostVolume{Path: path, ID: "v1"}) {
		t.Fatalf("offered: %v", got)
	}
	if err := os.WriteFile(filepath.Join(path, "sales.db"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The hub says the same again, first because it has not heard of it, then because a session began.
	k.accept(wanted("v1"))
	k.wantRows("v1 ready", "v1 ready")
	known := wanted("v1")
	known.Pending = false
	k.accept(known)
	k.stop()
	k.run() // a restarted agent makes nothing again
	if _, err := os.Stat(filepath.Join(path, "sales.db")); err != nil || len(k.keeper.Offered()) != 1 {
		t.Fatalf("%v, offered: %v", err, k.keeper.Offered())
	}

	k.setUsed(true)
	known.Delete = true
	k.accept(known)
	k.wantRows("v1 ready", "v1 ready", "v1 ready: delete host volume data: an allocation on this edge uses it")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	k.setUsed(false)
	k.wantRows("v1 ready", "v1 ready", "v1 ready", "v1 deleted: host volume data is deleted")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) || len(k.keeper.Offered()) != 0 || len(k.journal.handles) != 0 {
		t.Fatalf("%v, offered: %v, journal: %d", err, k.keeper.Offered(), len(k.journal.handles))
	}
	k.accept(known) // of a volume that is gone: the hub has not heard of it
	k.wantRows("v1 ready", "v1 ready", "v1 ready", "v1 deleted", "v1 deleted")
}

func TestVolumeThatCannotBeMadeIsTriedAgain(t *testing.T) {
	k := newKeeperTest(t)
	if err := os.WriteFile(filepath.Join(k.dir, "volumes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k.accept(wanted("v1"))
	k.wantRows("v1 pending: make host volume data: ")
	if err := os.Remove(filepath.Join(k.dir, "volumes")); err != nil {
		t.Fatal(err)
	}
	k.wantRows("v1 pending", "v1 ready")
}

func TestRegisteredFolderStays(t *testing.T) {
	k := newKeeperTest(t)
	path := filepath.Join(k.dir, "srv")
	v := wanted("v1")
	v.Plugin, v.Parameters, v.Path = "", nil, path
	k.accept(v)
	k.wantRows("v1 pending: make host volume data: " + path + " is not a folder")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	k.wantRows("v1 pending", "v1 ready")
	v.Delete = true
	k.accept(v)
	k.wantRows("v1 pending", "v1 ready", "v1 deleted: host volume data is deleted, its folder stays")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestIDsThatAreNoFolders(t *testing.T) {
	k := newKeeperTest(t)
	for _, id := range []fleet.VolumeID{"", "..", "a/b", "/etc", `a\b`, fleet.VolumeID(strings.Repeat("x", 65))} {
		v := wanted(id)
		v.Delete = true
		k.accept(v)
	}
	k.accept(wanted("v1"))
	k.wantRows("v1 ready")
}

// FuzzRecord opens journals with arbitrary records.
func FuzzRecord(f *testing.F) {
	j := &fakeJournal{handles: map[string][]byte{}}
	cfg := hostvolumes.Config{Journal: j, Dir: f.TempDir(), Log: slog.New(slog.DiscardHandler), Used: func(context.Context, string, string) (bool, error) { return false, nil }}
	k, err := hostvolumes.Open(cfg)
	if err != nil {
		f.Fatal(err)
	}
	if err := k.Accept(context.Background(), []syncproto.DesiredVolume{wanted("v1")}); err != nil {
		f.Fatal(err)
	}
	for _, raw := range j.handles {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg.Journal = &fakeJournal{handles: map[string][]byte{"volume/v1": raw}}
		k, err := hostvolumes.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range k.Offered() {
			if v.Path == "" {
				t.Errorf("volume %q has no path", name)
			}
		}
	})
}

// TestNewerDeliveryDuringAStep: a step that ends late does not bring back an older wish of the hub.
func TestNewerDeliveryDuringAStep(t *testing.T) {
	k := newKeeperTest(t)
	k.accept(syncproto.DesiredVolume{ID: "v1", Name: "data"})
	k.wantRows("v1 ready")
	k.mu.Lock()
	k.used = true
	k.onUsed = func() {
		if err := k.keeper.Accept(context.Background(), []syncproto.DesiredVolume{{ID: "v1", Name: "data"}}); err != nil {
			k.Error(err)
		}
		k.setUsed(false)
	}
	k.mu.Unlock()
	k.accept(syncproto.DesiredVolume{ID: "v1", Name: "data", Delete: true})
	k.eventually(func() bool { k.mu.Lock(); defer k.mu.Unlock(); return !k.used })
	k.accept(syncproto.DesiredVolume{ID: "v2", Name: "more"})
	k.eventually(func() bool { return len(k.keeper.Offered()) == 2 || len(k.rows()) > 2 })
	if got := k.keeper.Offered(); got["data"].ID != "v1" || got["more"].ID != "v2" {
		t.Fatalf("offered %v, rows %q", got, k.rows())
	}
}
