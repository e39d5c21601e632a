// Package vault logs in to Vault for tasks, with the identity that a hub gave each, and keeps what Vault gave: the task's
// token, and the secrets that its templates read. Both are journaled, encrypted by the machine, so that a task starts with
// them after a reboot without a link.
//
// cmd/edged makes a Client, edge.Open a Keeper with it. Package tokens below, a hook of edge/runner, gives tokens to tasks
// and keeps them valid while a task runs; edge/templates reads secrets. Keeper.Run is the only goroutine: it forgets what
// belonged to allocations that have ended. What Vault does not give again, because it is away or refuses, stays as it was.
package vault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/pace"
	"skerry/internal/remoteapi"
)

var _ Journal = (*journal.Journal)(nil)

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
	Client  *Client
	Journal Journal
	Sealer  Sealer
	// Needs reports whether an allocation is here and has not ended.
	Needs func(ctx context.Context, alloc fleet.AllocID) (bool, error)
	Log   *slog.Logger
}

const (
	// keyPrefix begins the journal's keys of records. They belong to no allocation, so that one handler forgets them.
	keyPrefix     = "vault/"
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	maxToken      = 32 << 10
	maxSecrets    = 64        // of a task
	maxSecretSize = 512 << 10 // of all secrets of a task, in bytes
	maxRecord     = maxSecretSize + 4*maxToken
	// forgetPoll is the pause between two looks for records whose allocation has ended.
	forgetPoll = 30 * time.Second
)

// Task is a task that uses Vault.
type Task struct {
	Alloc fleet.AllocID
	Name  string
	Block *fleet.Vault
}

// taskKey identifies a task.
type taskKey struct {
	alloc fleet.AllocID
	task  string
}

func (t Task) recordKey() taskKey { return taskKey{t.Alloc, t.Name} }

// journalKey is unique: neither an allocation's ID nor the name of a task has a slash.
func (k taskKey) journalKey() string { return keyPrefix + string(k.alloc) + "/" + k.task }

// record is what a task has of Vault, in the journal before it is encrypted.
type record struct {
	Version   int           `cbor:"1,keyasint"`
	Alloc     fleet.AllocID `cbor:"2,keyasint"`
	Task      string        `cbor:"3,keyasint"`
	Namespace string        `cbor:"4,keyasint,omitempty"` // of Vault
	Role      string        `cbor:"5,keyasint,omitempty"`
	Token     string        `cbor:"6,keyasint,omitempty"`
	Lease     int64         `cbor:"7,keyasint,omitempty"` // of the token at its login, in seconds; 0: it does not end
	Renewable bool          `cbor:"8,keyasint,omitempty"`
	Secrets   []secret      `cbor:"9,keyasint,omitempty"` // in the order of their names
}

// held is what a Keeper has of a task.
type held struct {
	record
	// busy has capacity 1, and is full while somebody asks Vault for this task: no mutex is held meanwhile.
	busy  chan struct{}
	due   time.Time            // when the token is renewed; zero: at once
	reads map[string]time.Time // when a secret is renewed, by its name; missing: at once
}

// Keeper keeps tokens and secrets. Its methods may be called from any goroutine.
type Keeper struct {
	cfg Config

	mu    sync.Mutex
	tasks map[taskKey]*held // the fields of a held are guarded by mu, and changed by whoever has it busy
}

// Open makes the Keeper and reads the records from the journal. One that cannot be decrypted is left out: the task logs in
// again.
func Open(cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, tasks: map[taskKey]*held{}}
	found, err := cfg.Journal.Handles(context.Background(), noAlloc)
	if err != nil {
		return nil, fmt.Errorf("read what tasks have of Vault: %w", err)
	}
	for key, raw := range found {
		if !strings.HasPrefix(key, keyPrefix) {
			continue
		}
		r, err := openRecord(cfg.Sealer, key, raw)
		if err != nil {
			cfg.Log.Error("what a task has of Vault is not readable: it has to log in again", "error", err)
			continue
		}
		h := k.findTask(taskKey{r.Alloc, r.Task})
		h.record = r
	}
	return k, nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 6, Elements: maxSecrets, Pairs: 16, Items: 16 * maxSecrets})

// openRecord decrypts and decodes a record of the journal.
func openRecord(s Sealer, key string, raw []byte) (record, error) {
	if len(raw) > 2*maxRecord {
		return record{}, fmt.Errorf("read what a task has of Vault: %d bytes", len(raw))
	}
	plain, err := s.Open(raw, []byte(key))
	if err != nil {
		return record{}, fmt.Errorf("read what a task has of Vault: %w", err)
	}
	return decodeRecord(key, plain)
}

// decodeRecord decodes the decrypted record of a key. Its errors have nothing of it.
func decodeRecord(key string, plain []byte) (record, error) {
	var r record
	if err := decoder.Unmarshal(plain, &r); err != nil {
		return record{}, errors.New("decode what a task has of Vault: it is damaged")
	}
	if r.Version != recordVersion || (taskKey{r.Alloc, r.Task}).journalKey() != key || r.Lease < 0 {
		return record{}, fmt.Errorf("decode what a task has of Vault: version %d, task %.64q", r.Version, r.Task)
	}
	for i := range r.Secrets {
		if _, err := r.Secrets[i].decodeBody(); err != nil {
			return record{}, err
		}
	}
	return r, nil
}

// findTask returns what the Keeper has of a task, which may be empty.
func (k *Keeper) findTask(key taskKey) *held {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, ok := k.tasks[key]
	if !ok {
		h = &held{busy: make(chan struct{}, 1), reads: map[string]time.Time{}, record: record{Version: recordVersion, Alloc: key.alloc, Task: key.task}}
		k.tasks[key] = h
	}
	return h
}

// lockTask returns what the Keeper has of a task, for the caller alone until unlock.
func (k *Keeper) lockTask(ctx context.Context, key taskKey) (h *held, unlock func(), err error) {
	h = k.findTask(key)
	select {
	case h.busy <- struct{}{}:
		return h, func() { <-h.busy }, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// storeRecord journals the record of a task, and takes it then.
func (k *Keeper) storeRecord(ctx context.Context, h *held, r record) error {
	key := (taskKey{r.Alloc, r.Task}).journalKey()
	plain, err := codec.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep what task %s has of Vault: %w", r.Task, err)
	}
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, key, k.cfg.Sealer.Seal(plain, []byte(key))); err != nil {
		return fmt.Errorf("keep what task %s has of Vault: %w", r.Task, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	h.record = r
	return nil
}

// Client is the client of the Vault of this edge.
func (k *Keeper) Client() *Client { return k.cfg.Client }

// Token returns the newest token of a task for its namespace and role; "": there is none yet. It may have ended.
func (k *Keeper) Token(t Task) string {
	h := k.findTask(t.recordKey())
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.Namespace != k.cfg.Client.Namespace(t.Block.Namespace) || h.Role != t.Block.Role {
		return ""
	}
	return h.record.Token
}

// Bounds of the time between two renewals of a token.
const (
	minRenewal = 5 * time.Second
	maxRenewal = time.Hour
)

// renewalPause is the time until a token with that lease, in seconds, is renewed: half of it.
func renewalPause(lease int64) time.Duration {
	if lease == 0 || lease > int64(2*maxRenewal/time.Second) {
		return maxRenewal
	}
	return max(time.Duration(lease)*time.Second/2, minRenewal)
}

// Renew makes sure that the token of a task is valid: it renews it, or logs in with the task's JWT ("": none) if there is
// none, if Vault does not take it any more, or if it cannot live much longer. After an error the task has what it had.
func (k *Keeper) Renew(ctx context.Context, t Task, jwt string) error {
	h, unlock, err := k.lockTask(ctx, t.recordKey())
	if err != nil {
		return err
	}
	defer unlock()
	return k.renewLocked(ctx, h, t, jwt)
}

func (k *Keeper) renewLocked(ctx context.Context, h *held, t Task, jwt string) error {
	token, refused := k.Token(t), error(nil)
	if token != "" {
		left, err := k.extendToken(ctx, h, t, token)
		if err == nil {
			k.setDue(h, renewalPause(left))
			if left == 0 || 2*left >= h.Lease || t.Block.AllowTokenExpiration || jwt == "" {
				return nil
			}
			// The token is near the end of its life. Until that, it does not matter whether the login fails.
			_ = k.logInTask(ctx, h, t, jwt)
			return nil
		}
		if !remoteapi.IsRefused(err) {
			return err
		}
		refused = err
	}
	if jwt == "" {
		return cmp.Or(refused, errNoJWT)
	}
	return k.logInTask(ctx, h, t, jwt)
}

// errNoJWT is the error of a login before a hub has delivered the task's identity.
var errNoJWT = fmt.Errorf("log in to Vault: the edge has no identity %s of the task yet: a hub delivers it when there is a link", fleet.VaultIdentity)

// extendToken renews a token, or looks it up if it is not renewable. It returns its lease in seconds; 0: it does not end.
func (k *Keeper) extendToken(ctx context.Context, h *held, t Task, token string) (lease int64, err error) {
	var a auth
	if h.Renewable && h.Lease > 0 && !t.Block.AllowTokenExpiration {
		a, err = k.cfg.Client.renewToken(ctx, h.Namespace, token)
	} else {
		a, err = k.cfg.Client.lookUpToken(ctx, h.Namespace, token)
	}
	return a.Lease, err
}

// logInTask gets a token for a task. What was read with another one is read again: its leases end with that token.
func (k *Keeper) logInTask(ctx context.Context, h *held, t Task, jwt string) error {
	namespace := k.cfg.Client.Namespace(t.Block.Namespace)
	a, err := k.cfg.Client.logIn(ctx, namespace, t.Block.Role, jwt)
	if err != nil {
		return err
	}
	r := h.record
	r.Secrets = slices.Clone(r.Secrets)
	for i := range r.Secrets {
		r.Secrets[i].Lease = 0
	}
	r.Namespace, r.Role, r.Token, r.Lease, r.Renewable = namespace, t.Block.Role, a.Token, a.Lease, a.Renewable
	if err := k.storeRecord(ctx, h, r); err != nil {
		return err
	}
	k.setDue(h, renewalPause(a.Lease))
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(h.reads)
	return nil
}

func (k *Keeper) setDue(h *held, pause time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.due = time.Now().Add(pause)
}

// Upkeep does what is due for a running task: it renews its token and the leases of its secrets, and reads secrets again. It
// returns the time until something is due again. After an error the task has what it had, and the caller tries again later.
func (k *Keeper) Upkeep(ctx context.Context, t Task, jwt string) (next time.Duration, err error) {
	h, unlock, err := k.lockTask(ctx, t.recordKey())
	if err != nil {
		return 0, err
	}
	defer unlock()
	var failed []error
	if !t.Block.AllowTokenExpiration && time.Until(h.due) <= 0 {
		if err := k.renewLocked(ctx, h, t, jwt); err != nil {
			if !remoteapi.IsRefused(err) {
				return 0, err
			}
			failed = append(failed, err)
		}
	}
	failed = append(failed, k.renewSecrets(ctx, h))
	if err := errors.Join(failed...); err != nil {
		return 0, err
	}
	next = maxRenewal
	if !t.Block.AllowTokenExpiration {
		next = time.Until(h.due)
	}
	for _, at := range h.reads {
		next = min(next, time.Until(at))
	}
	return max(next, time.Second), nil
}

// Run forgets what belonged to allocations that have ended, and revokes their tokens, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for pace.Rest(ctx, forgetPoll) {
		if err := k.forgetEnded(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("what tasks had of Vault is not forgotten; trying again", "error", err)
		}
	}
	return nil
}

func (k *Keeper) forgetEnded(ctx context.Context) error {
	k.mu.Lock()
	keys := slices.Collect(maps.Keys(k.tasks))
	k.mu.Unlock()
	away := false
	for _, key := range keys {
		needed, err := k.cfg.Needs(ctx, key.alloc)
		if err != nil {
			return err
		}
		if needed {
			continue
		}
		unreachable, err := k.forgetTask(ctx, key, away)
		if err != nil {
			return err
		}
		away = away || unreachable
	}
	return nil
}

// forgetTask removes what a task had, and revokes its token unless Vault is away: then the token ends with its lease.
func (k *Keeper) forgetTask(ctx context.Context, key taskKey, away bool) (unreachable bool, err error) {
	h, unlock, err := k.lockTask(ctx, key)
	if err != nil {
		return false, err
	}
	defer unlock()
	if h.record.Token != "" && !away {
		err := k.cfg.Client.revokeToken(ctx, h.Namespace, h.record.Token)
		unreachable = err != nil && !remoteapi.IsRefused(err)
	}
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, key.journalKey(), nil); err != nil {
		return unreachable, fmt.Errorf("forget what task %s has of Vault: %w", key.task, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.tasks, key)
	return unreachable, nil
}
