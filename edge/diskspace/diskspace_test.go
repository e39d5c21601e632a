package diskspace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/diskspace"
)

const mib = 1 << 20

// machine is a disk of 1000 MiB and 10,000 inodes, with ended allocations and stored contents on it.
type machine struct {
	mu sync.Mutex

	others, otherInodes int64    // in use by others, in MiB and inodes
	ended               []int64  // MiB of each, with 100 inodes
	stored              int64    // MiB that no allocation needs
	did                 []string // steps, in order
	rows                []string
	reserveFreed        bool
	broken              error // of the measurement
	stuck               error // of the first collection
	noRows              bool  // no row can be written
}

// change changes the machine.
func (m *machine) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *machine) measure() (diskspace.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return diskspace.Usage{}, m.broken
	}
	used := m.others + m.stored
	for _, size := range m.ended {
		used += size
	}
	return diskspace.Usage{
		Free: (1000 - used) * mib, Total: 1000 * mib,
		FreeInodes: 10_000 - m.otherInodes - 100*int64(len(m.ended)), TotalInodes: 10_000, ReserveFreed: m.reserveFreed,
	}, nil
}

func (m *machine) collectOldest(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck != nil || len(m.ended) == 0 {
		return false, m.stuck
	}
	m.did = append(m.did, fmt.Sprintf("collect %d", m.ended[0]))
	m.ended = m.ended[1:]
	return true, nil
}

func (m *machine) evict(bytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, fmt.Sprintf("evict %d", bytes/mib))
	m.stored = max(0, m.stored-bytes/mib)
	return nil
}

func (m *machine) record(_ context.Context, message string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noRows {
		return errors.New("the disk is full")
	}
	m.rows = append(m.rows, message)
	return nil
}

// mustKeep runs a Keeper until the test ends. The returned function lets time pass until the disk was measured once more.
func (m *machine) mustKeep(t *testing.T, l diskspace.Limits) (k *diskspace.Keeper, nextCheck func()) {
	t.Helper()
	k, err := diskspace.New(diskspace.Config{
		Limits: l, Measure: m.measure, CollectOldest: m.collectOldest, Evict: m.evict, Record: m.record, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return k, func() {
		time.Sleep(10 * time.Second)
		synctest.Wait()
	}
}

var nomads = diskspace.Limits{DiskPercent: diskspace.DefaultDiskPercent, InodePercent: diskspace.DefaultInodePercent, MinFree: 40 * mib}

const (
	noBytes  = "the disk of the data directory has too little free space"
	noInodes = "the disk of the data directory has too few free inodes"
)

// Ended allocations go first, the oldest first, then stored contents, and no more of either than is needed.
func TestCollects(t *testing.T) {
	for name, tc := range map[string]struct {
		machine *machine
		limits  diskspace.Limits
		did     []string
		full    string
	}{
		"at the threshold":               {machine: &machine{others: 800}},
		"above it":                       {machine: &machine{others: 800, ended: []int64{1, 2, 3}, stored: 5}, did: []string{"collect 1", "collect 2", "collect 3", "evict 5"}},
		"until there is room":            {machine: &machine{others: 780, ended: []int64{15, 15, 15}, stored: 5}, did: []string{"collect 15", "collect 15"}},
		"no more stored than needed":     {machine: &machine{others: 790, stored: 50}, did: []string{"evict 40"}},
		"nothing to collect":             {machine: &machine{others: 900}, did: []string{"evict 100"}},
		"inodes":                         {machine: &machine{otherInodes: 6850, ended: []int64{0, 0, 0}, stored: 500}, did: []string{"collect 0", "collect 0"}},
		"not by usage, but to have room": {machine: &machine{others: 950, ended: []int64{5, 5}, stored: 9}, limits: diskspace.Limits{DiskPercent: 100, InodePercent: 100, MinFree: 40 * mib}, did: []string{"collect 5", "collect 5", "evict 9"}},
		"not by usage":                   {machine: &machine{others: 950, otherInodes: 9000, ended: []int64{5}}, limits: diskspace.Limits{DiskPercent: 100, InodePercent: 100, MinFree: 40 * mib}},
		"too little room":                {machine: &machine{others: 990, ended: []int64{1}}, did: []string{"collect 1", "evict 190"}, full: noBytes},
		"too few inodes":                 {machine: &machine{otherInodes: 9900}, full: noInodes},
		"the reserve is in use":          {machine: &machine{others: 500, reserveFreed: true}, full: noBytes},
		"no room is asked for":           {machine: &machine{others: 1000}, limits: diskspace.Limits{DiskPercent: 100, InodePercent: 100, MinFree: -1}},
		"a folder that cannot be removed": {
			machine: &machine{others: 970, ended: []int64{1}, stored: 5, stuck: errors.New("it is busy")}, did: []string{"evict 176"}, full: noBytes,
		},
		"a disk that cannot be measured": {machine: &machine{broken: errors.New("not supported"), ended: []int64{1}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.limits == (diskspace.Limits{}) {
					tc.limits = nomads
				}
				m := tc.machine
				k, _ := m.mustKeep(t, tc.limits)
				if !slices.Equal(m.did, tc.did) || k.WhyFull() != tc.full {
					t.Errorf("it did %q, and is full because %q; want %q and %q", m.did, k.WhyFull(), tc.did, tc.full)
				}
			})
		})
	}
}

// A disk that is full stays full until there is a quarter more space than new allocations need, so that they do not wait
// and start in turn. Each change is recorded once, also if the journal has no room at first.
func TestNewAllocationsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{others: 500}
		k, nextCheck := m.mustKeep(t, nomads)
		changed := k.Changed()
		wantFull := func(others int64, want bool) {
			t.Helper()
			m.change(func() { m.others = others })
			nextCheck()
			if (k.WhyFull() != "") != want {
				t.Fatalf("with %d MiB free it is full because %q, want full: %t", 1000-others, k.WhyFull(), want)
			}
		}
		wantFull(960, false)
		select {
		case <-changed:
			t.Fatal("a change is told that is none")
		default:
		}
		m.change(func() { m.noRows = true })
		wantFull(961, true)
		<-changed
		changed = k.Changed()
		wantFull(960, true)
		if len(m.rows) != 0 {
			t.Fatalf("recorded: %q", m.rows)
		}
		m.change(func() { m.noRows = false })
		wantFull(951, true)
		m.change(func() { m.broken = errors.New("cannot be read") })
		wantFull(100, true)
		m.change(func() { m.broken = nil })
		wantFull(950, false)
		<-changed
		wantFull(960, false)
		want := []string{"new allocations wait: " + noBytes, "new allocations start again: the disk has free space"}
		if !slices.Equal(m.rows, want) {
			t.Errorf("recorded: %q, want %q", m.rows, want)
		}
	})
}

// A Keeper knows before its first check that the disk is full: nothing starts meanwhile.
func TestFullAtTheStart(t *testing.T) {
	m := &machine{others: 990}
	k, err := diskspace.New(diskspace.Config{
		Limits: nomads, Measure: m.measure, CollectOldest: m.collectOldest, Evict: m.evict, Record: m.record, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil || k.WhyFull() != noBytes || len(m.did) != 0 {
		t.Errorf("it is full because %q (%v), and did %q", k.WhyFull(), err, m.did)
	}
	if _, err := diskspace.New(diskspace.Config{}); err == nil {
		t.Error("a Keeper was made of nothing")
	}
}
