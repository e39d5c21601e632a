// Package identities keeps the tokens of the identities of tasks, as a hub delivers them. Package files below it writes them
// into the tasks' files.
//
// edge.Open makes a Keeper and passes it the tokens of a hub's requests. Each token is journaled, encrypted by the machine,
// before Accept returns, so that it is there again after a reboot without a link. A token that has expired stops nothing.
// The Keeper signs another one with the edge's own key while no hub is in reach, if the job allows it. Keeper.Run is its only
// goroutine: it signs, and forgets tokens whose allocation has ended.
package identities

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/sorting"
	"skerry/syncproto"
)

// Journal is the part of the edge's journal that a Keeper uses.
type Journal interface {
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// Sealer encrypts what is on the disk; bound says what it belongs to.
type Sealer interface {
	Seal(plain, bound []byte) []byte
	Open(sealed, bound []byte) ([]byte, error)
}

// Config of a Keeper. All fields are required.
type Config struct {
	Node    fleet.NodeID
	Journal Journal
	Sealer  Sealer
	// Needs reports whether an allocation is here and has not ended.
	Needs func(ctx context.Context, alloc fleet.AllocID) (bool, error)
	// HubTime is the time by the clocks of hubs, as well as the edge knows it: tokens that the edge signs bear it.
	HubTime func() time.Time
	// Connected reports whether there is a session with a hub that has answered within a time.
	Connected func(within time.Duration) bool
	// Announce is called when PublicKey has changed. It must not block.
	Announce func()
	Log      *slog.Logger
}

const (
	// keyPrefix begins the journal's keys of tokens. They belong to no allocation: a token comes before its allocation.
	keyPrefix     = "identity/"
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	maxRecord     = 4 * syncproto.MaxIdentityToken
	// forgetPoll is the pause between two looks for tokens whose allocation has ended.
	forgetPoll = 30 * time.Second
	// arrivalGrace is how long a token is kept before its allocation has arrived.
	arrivalGrace = 2 * time.Minute
)

// record is a hub's token in the journal, before it is encrypted. Renewed is the newest one that the edge has signed since.
type record struct {
	Version  int                          `cbor:"1,keyasint"`
	Identity syncproto.DeliveredIdentity  `cbor:"2,keyasint"`
	Renewed  *syncproto.DeliveredIdentity `cbor:"3,keyasint,omitempty"`
}

// newestToken returns the token that the task gets.
func (r *record) newestToken() *syncproto.DeliveredIdentity {
	if r.Renewed != nil {
		return r.Renewed
	}
	return &r.Identity
}

// journalKey is unique: neither an allocation's ID nor the name of an identity has a slash.
func journalKey(n syncproto.IdentityName) string {
	return keyPrefix + string(n.Alloc) + "/" + n.Identity + "/" + n.Task
}

// Keeper keeps tokens. Its methods may be called from any goroutine.
type Keeper struct {
	cfg Config

	changing chan struct{} // capacity 1; full while the journal is changed: no mutex is held while a disk is awaited
	keyMade  bool          // this process has made a key; guarded by changing

	mu      sync.Mutex
	tokens  map[syncproto.IdentityName]record
	arrived map[syncproto.IdentityName]time.Time // of tokens whose allocation has not arrived yet
	keys    signingKeys
	changed chan struct{} // closed when a token changes
}

// Open makes the Keeper and reads the tokens from the journal. One that cannot be decrypted is left out: a hub delivers
// another.
func Open(cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, changing: make(chan struct{}, 1), tokens: map[syncproto.IdentityName]record{}, arrived: map[syncproto.IdentityName]time.Time{}, changed: make(chan struct{})}
	held, err := cfg.Journal.Handles(context.Background(), noAlloc)
	if err != nil {
		return nil, fmt.Errorf("read the identities of tasks: %w", err)
	}
	for key, raw := range held {
		if !strings.HasPrefix(key, keyPrefix) {
			continue
		}
		r, err := openRecord(cfg.Sealer, key, raw)
		if err != nil {
			cfg.Log.Error("identity of a task not readable: a hub has to deliver it again", "error", err)
			continue
		}
		k.tokens[r.Identity.IdentityName()], k.arrived[r.Identity.IdentityName()] = r, time.Now()
	}
	if raw := held[signingKey]; raw != nil {
		if k.keys, err = openKeys(cfg.Sealer, raw); err != nil {
			cfg.Log.Error("key for identities not readable: making another when a hub is in reach", "error", err)
		}
	}
	return k, nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 4, Elements: 16, Pairs: 16, Items: 64})

// openRecord decrypts and decodes a record of the journal.
func openRecord(s Sealer, key string, raw []byte) (r record, err error) {
	if len(raw) > maxRecord {
		return r, fmt.Errorf("read the identity of a task: %d bytes", len(raw))
	}
	plain, err := s.Open(raw, []byte(key))
	if err != nil {
		return r, fmt.Errorf("read the identity of a task: %w", err)
	}
	return decodeRecord(key, plain)
}

// decodeRecord decodes the decrypted record of a key.
func decodeRecord(key string, plain []byte) (r record, err error) {
	if err := decoder.Unmarshal(plain, &r); err != nil {
		return r, fmt.Errorf("decode the identity of a task: %w", err)
	}
	if r.Version != recordVersion || journalKey(r.Identity.IdentityName()) != key || r.newestToken().IdentityName() != r.Identity.IdentityName() {
		return r, fmt.Errorf("decode the identity of a task: version %d, task %.64q", r.Version, r.Identity.Task)
	}
	return r, nil
}

// Accept journals the tokens that a hub delivers. It returns what the edge holds then, without the tokens themselves.
// published is the id of the edge's key that the hubs publish; "": none.
func (k *Keeper) Accept(ctx context.Context, list []syncproto.DeliveredIdentity, published string) ([]syncproto.DeliveredIdentity, error) {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	for i := range list {
		if err := k.keepToken(ctx, &list[i]); err != nil {
			return nil, err
		}
	}
	if err := k.keepKeys(ctx, published); err != nil {
		return nil, err
	}
	return k.Held(""), nil
}

// keepToken journals the token of a hub.
func (k *Keeper) keepToken(ctx context.Context, d *syncproto.DeliveredIdentity) error {
	if err := d.Check(); err != nil {
		return err
	}
	if err := k.putRecord(ctx, record{Version: recordVersion, Identity: *d}); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.arrived[d.IdentityName()] = time.Now()
	return nil
}

// putRecord journals a record, and has its readers see it.
func (k *Keeper) putRecord(ctx context.Context, r record) error {
	d := &r.Identity
	plain, err := codec.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep identity %s of task %s: %w", d.Name, d.Task, err)
	}
	key := journalKey(d.IdentityName())
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, key, k.cfg.Sealer.Seal(plain, []byte(key))); err != nil {
		return fmt.Errorf("keep identity %s of task %s: %w", d.Name, d.Task, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens[d.IdentityName()] = r
	k.noteChange()
	return nil
}

// noteChange wakes those who wait for a change. k.mu is held.
func (k *Keeper) noteChange() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Held lists the identities of an allocation, or all for "", without their tokens.
func (k *Keeper) Held(alloc fleet.AllocID) []syncproto.DeliveredIdentity {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := []syncproto.DeliveredIdentity{}
	for _, r := range k.tokens {
		if d := *r.newestToken(); alloc == "" || d.Alloc == alloc {
			d.Token = ""
			held = append(held, d)
		}
	}
	sorting.Slice(held, func(a, b syncproto.DeliveredIdentity) int {
		return cmp.Compare(journalKey(a.IdentityName()), journalKey(b.IdentityName()))
	})
	return held
}

// Token returns the newest token of an identity; ok is false if there is none yet. changed is closed when any token
// changes.
func (k *Keeper) Token(alloc fleet.AllocID, task, identity string) (token string, changed <-chan struct{}, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.tokens[syncproto.IdentityName{Alloc: alloc, Task: task, Identity: identity}]
	return r.newestToken().Token, k.changed, ok
}

// Run renews the tokens that it may while no hub is in reach, and forgets those whose allocation has ended, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	forgotten, warned := time.Now(), ""
	for ctx.Err() == nil {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		wait, err := k.RenewOffline(ctx)
		text := ""
		if err != nil && ctx.Err() == nil {
			if text = err.Error(); text != warned {
				k.cfg.Log.Warn("identities of tasks not renewed by the edge; trying again", "error", err)
			}
		}
		warned = text
		if time.Since(forgotten) >= forgetPoll {
			if err := k.forgetEnded(ctx); err != nil && ctx.Err() == nil {
				k.cfg.Log.Warn("identities of tasks not forgotten; trying again", "error", err)
			}
			forgotten = time.Now()
		}
		timer := time.NewTimer(min(wait, forgetPoll-time.Since(forgotten)))
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

func (k *Keeper) forgetEnded(ctx context.Context) error {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	k.mu.Lock()
	names := slices.Collect(maps.Keys(k.tokens))
	k.mu.Unlock()
	for _, n := range names {
		needed, err := k.cfg.Needs(ctx, n.Alloc)
		if err != nil {
			return err
		}
		k.mu.Lock()
		at, waits := k.arrived[n]
		if needed {
			delete(k.arrived, n)
		}
		k.mu.Unlock()
		if needed || waits && time.Since(at) < arrivalGrace {
			continue
		}
		if err := k.cfg.Journal.PutHandle(ctx, noAlloc, journalKey(n), nil); err != nil {
			return fmt.Errorf("forget identity %s of task %s: %w", n.Identity, n.Task, err)
		}
		k.mu.Lock()
		delete(k.tokens, n)
		delete(k.arrived, n)
		k.mu.Unlock()
	}
	return nil
}
