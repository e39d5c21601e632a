// Package sitecodes keeps the codes of people on site, as a hub delivers them, and checks those that people give.
//
// edge.Open makes a Keeper, passes it the codes of a hub's requests, and asks it for each request of the local API that has
// a code. Each code is journaled, encrypted by the machine, before Accept returns, so that it is there again after a
// reboot without a link. Wrong tries are journaled before they are answered. The package starts no goroutine.
package sitecodes

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/sitecode"
	"skerry/internal/sorting"
	"skerry/syncproto"
)

// Journal is the part of the edge's journal that a Keeper uses.
type Journal interface {
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
	// TimeFloor returns a time (UnixNano) that has certainly passed: it goes on while the machine runs, whatever its wall
	// clock shows.
	TimeFloor() int64
}

// Sealer encrypts what is on the disk; bound says what it belongs to.
type Sealer interface {
	Seal(plain, bound []byte) []byte
	Open(sealed, bound []byte) ([]byte, error)
}

// Config of a Keeper. All fields are required.
type Config struct {
	Journal Journal
	Sealer  Sealer
	Now     func() time.Time // wall clock
	Log     *slog.Logger
}

const (
	// keyPrefix begins the journal's keys of codes, and triesKey is that of the wrong tries. They belong to no allocation.
	keyPrefix     = "sitecode/"
	triesKey      = "sitecode-tries"
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	maxRecord     = 16 << 10
)

// record is one code in the journal, before it is encrypted.
type record struct {
	Version int                         `cbor:"1,keyasint"`
	Code    syncproto.DeliveredSiteCode `cbor:"2,keyasint"`
}

// Keeper keeps codes. Its methods may be called from any goroutine.
type Keeper struct {
	cfg Config

	changing chan struct{} // capacity 1; full while the journal is changed or a code is checked: no mutex is held then
	mu       sync.Mutex
	codes    map[string]syncproto.DeliveredSiteCode // by id

	tries map[string]tries // by id, unknownID: of all unknown codes; the owner of changing reads and writes it
}

// Open makes the Keeper and reads the codes from the journal. One that cannot be decrypted is left out: a hub delivers it
// again.
func Open(cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, changing: make(chan struct{}, 1), codes: map[string]syncproto.DeliveredSiteCode{}, tries: map[string]tries{}}
	held, err := cfg.Journal.Handles(context.Background(), noAlloc)
	if err != nil {
		return nil, fmt.Errorf("read the site codes of this edge: %w", err)
	}
	for key, raw := range held {
		if !strings.HasPrefix(key, keyPrefix) {
			continue
		}
		d, err := openRecord(cfg.Sealer, key, raw)
		if err != nil {
			cfg.Log.Error("site code not readable: a hub has to deliver it again", "error", err)
			continue
		}
		k.codes[d.ID] = d
	}
	if raw := held[triesKey]; raw != nil {
		if k.tries, err = openTries(cfg.Sealer, raw); err != nil {
			cfg.Log.Error("wrong tries of site codes not readable: every code has to wait as after many", "error", err)
			k.tries = k.suspectAll()
		}
	}
	return k, nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 6, Elements: 256, Pairs: 256, Items: 2048})

// openRecord decrypts and decodes a record of the journal.
func openRecord(s Sealer, key string, raw []byte) (d syncproto.DeliveredSiteCode, err error) {
	if len(raw) > maxRecord {
		return d, fmt.Errorf("read a site code: %d bytes", len(raw))
	}
	plain, err := s.Open(raw, []byte(key))
	if err != nil {
		return d, fmt.Errorf("read a site code: %w", err)
	}
	return decodeRecord(key, plain)
}

// decodeRecord decodes the decrypted record of a key.
func decodeRecord(key string, plain []byte) (syncproto.DeliveredSiteCode, error) {
	var r record
	if err := decoder.Unmarshal(plain, &r); err != nil {
		return r.Code, fmt.Errorf("decode a site code: %w", err)
	}
	if r.Version != recordVersion || keyPrefix+r.Code.ID != key {
		return r.Code, fmt.Errorf("decode a site code: version %d, id %.64q", r.Version, r.Code.ID)
	}
	return r.Code, checkDelivered(&r.Code)
}

// checkDelivered returns what is wrong with a code to keep.
func checkDelivered(d *syncproto.DeliveredSiteCode) error {
	if err := d.Check(); err != nil {
		return err
	}
	if !sitecode.IsID(d.ID) || d.Name == "" {
		return fleet.Errorf(fleet.CodeInvalid, "keep site code %.32q: its id is no id, or it has no name", d.ID)
	}
	return sitecode.CheckHash(hashOf(d))
}

func hashOf(d *syncproto.DeliveredSiteCode) fleet.SiteCodeHash {
	return fleet.SiteCodeHash{Salt: d.Salt, Hash: d.Hash, Rounds: d.Rounds}
}

// Accept journals the codes that a hub delivers, and forgets those that it says are revoked, and those that have certainly
// ended. It keeps all others: a hub that does not know a code may have been restored. What is older than what the edge has
// is ignored: that hub lags. It returns what the edge holds then, without hashes.
func (k *Keeper) Accept(ctx context.Context, list []syncproto.DeliveredSiteCode) ([]syncproto.DeliveredSiteCode, error) {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	for _, d := range k.heldCodes() {
		if d.Expires <= k.cfg.Journal.TimeFloor()/int64(time.Second) {
			if err := k.forgetCode(ctx, d.ID); err != nil {
				return nil, err
			}
		}
	}
	for i := range list {
		d := &list[i]
		if err := d.Check(); err != nil {
			return nil, err
		}
		old, known := k.findCode(d.ID)
		var err error
		switch {
		case known && old.ModifyIndex > d.ModifyIndex:
		case d.Revoked && known:
			err = k.forgetCode(ctx, d.ID)
		case !d.Revoked:
			err = k.keepCode(ctx, d, known)
		}
		if err != nil {
			return nil, err
		}
	}
	held := k.heldCodes()
	for i, d := range held {
		held[i] = syncproto.DeliveredSiteCode{ID: d.ID, ModifyIndex: d.ModifyIndex, Capabilities: d.Capabilities}
	}
	return held, nil
}

// NoteIndex is called with the cluster's index at the begin of a session. Codes that are newer are of a state that the cluster has lost:
// what a hub delivers of them from now on counts.
func (k *Keeper) NoteIndex(ctx context.Context, index fleet.Index) error {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	for _, d := range k.heldCodes() {
		if d.ModifyIndex <= index {
			continue
		}
		d.ModifyIndex = 0
		if err := k.keepCode(ctx, &d, true); err != nil {
			return err
		}
	}
	return nil
}

// keepCode journals a code.
func (k *Keeper) keepCode(ctx context.Context, d *syncproto.DeliveredSiteCode, known bool) error {
	if err := checkDelivered(d); err != nil {
		return err
	}
	if !known && len(k.heldCodes()) >= syncproto.MaxSiteCodes {
		return fleet.Errorf(fleet.CodeConflict, "keep site code %s: this edge has %d, which is its bound", d.ID, syncproto.MaxSiteCodes)
	}
	plain, err := codec.Marshal(record{recordVersion, *d})
	if err != nil {
		return fmt.Errorf("keep site code %s: %w", d.ID, err)
	}
	key := keyPrefix + d.ID
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, key, k.cfg.Sealer.Seal(plain, []byte(key))); err != nil {
		return fmt.Errorf("keep site code %s: %w", d.ID, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.codes[d.ID] = *d
	return nil
}

// forgetCode removes a code from the journal and from memory.
func (k *Keeper) forgetCode(ctx context.Context, id string) error {
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, keyPrefix+id, nil); err != nil {
		return fmt.Errorf("forget site code %s: %w", id, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.codes, id)
	return nil
}

// findCode returns a code; ok is false if this edge has none of the id.
func (k *Keeper) findCode(id string) (d syncproto.DeliveredSiteCode, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, ok = k.codes[id]
	return d, ok
}

// heldCodes lists the codes by id.
func (k *Keeper) heldCodes() []syncproto.DeliveredSiteCode {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := make([]syncproto.DeliveredSiteCode, 0, len(k.codes))
	for _, d := range k.codes {
		held = append(held, d)
	}
	sorting.Slice(held, func(a, b syncproto.DeliveredSiteCode) int { return cmp.Compare(a.ID, b.ID) })
	return held
}

// latestTime returns the later one of the wall clock and of the time that has certainly passed: a clock that is put back revives
// no code.
func (k *Keeper) latestTime() time.Time {
	now, floor := k.cfg.Now(), time.Unix(0, k.cfg.Journal.TimeFloor())
	if floor.After(now) {
		return floor
	}
	return now
}
