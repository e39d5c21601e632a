// Package logins logs in to servers of others for tasks, with the identity that a hub gave each, and keeps what such a server
// gave: the token, and contents that were read with it. Both are journaled, encrypted by the machine, so that a task starts
// with them after a reboot without a link.
//
// edge/vault and edge/consul implement Server, and their Keepers have one of this package inside. Package tokens below, a hook of
// edge/runner, gives tokens to tasks and keeps them valid while a task runs, or waits in a template; edge/templates reads
// contents. Keeper.Run is the only goroutine: it forgets what belonged to allocations that have ended. What a server does not
// give again, because it is away or refuses, stays as it was.
package logins

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

	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/pace"
	"skerry/internal/remoteapi"
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

// Server gives tokens for the JWTs of tasks, and contents for tokens.
type Server interface {
	// Name names the server in texts and, in lower case, in the journal.
	Name() string
	// LogIn returns the token of a task for its JWT.
	LogIn(ctx context.Context, t Task, jwt string) (Token, error)
	// Extend renews a token, or looks it up unless renew is set. It returns for how many seconds it is valid; 0: it does not end.
	Extend(ctx context.Context, r Record, renew bool) (lease int64, err error)
	LogOut(ctx context.Context, r Record) error
	// Read asks for contents with the token of a task. A fleet.CodeInvalid means that there will never be an answer.
	Read(ctx context.Context, r Record, name string) (Content, error)
	// RenewContent renews the lease of contents for as long as they had, and returns for how many seconds; 0: read them again.
	RenewContent(ctx context.Context, r Record, c Content) (lease int64, err error)
	// ContentPause is the time until contents are renewed or read again.
	ContentPause(c Content) time.Duration
	// CheckContent returns what is wrong with contents from the journal.
	CheckContent(c Content) error
}

// Config of a Keeper. All fields are required. Server is set by the package of the server.
type Config struct {
	Server  Server
	Journal Journal
	Sealer  Sealer
	// Needs reports whether an allocation is here and has not ended.
	Needs func(ctx context.Context, alloc fleet.AllocID) (bool, error)
	Log   *slog.Logger
}

const (
	// noAlloc is that of the journal's records: they belong to no allocation, so that one handler forgets them.
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	maxToken      = 32 << 10
	maxContents   = 64        // of a task
	maxSize       = 512 << 10 // of all contents of a task, in bytes
	maxRecord     = maxSize + 4*maxToken
	// forgetPoll is the pause between two looks for records whose allocation has ended.
	forgetPoll = 30 * time.Second
)

// Task is a task, or a service, that logs in.
type Task struct {
	Alloc     fleet.AllocID
	Name      string // unique in the allocation
	Identity  string // name of the identity with which it logs in
	Namespace string // of the server
	Role      string
	// LetExpire has its token not renewed while it runs.
	LetExpire bool
}

// Token is what a login returns.
type Token struct {
	Text      string
	Lease     int64 // seconds; 0: it does not end
	Renewable bool
}

// IsToken reports whether a text can be the token of a server.
func IsToken(text string) bool {
	return text != "" && len(text) <= maxToken && !strings.ContainsAny(text, "\r\n\x00")
}

// taskKey identifies a task.
type taskKey struct {
	alloc fleet.AllocID
	task  string
}

func (t Task) recordKey() taskKey { return taskKey{t.Alloc, t.Name} }

// keyPrefix begins the journal's keys of records.
func (k *Keeper) keyPrefix() string { return strings.ToLower(k.cfg.Server.Name()) + "/" }

// journalKey is unique: the ID of an allocation has no slash.
func (k *Keeper) journalKey(key taskKey) string {
	return k.keyPrefix() + string(key.alloc) + "/" + key.task
}

// Record is what a task has of a server, in the journal before it is encrypted.
type Record struct {
	Version   int           `cbor:"1,keyasint"`
	Alloc     fleet.AllocID `cbor:"2,keyasint"`
	Task      string        `cbor:"3,keyasint"`
	Namespace string        `cbor:"4,keyasint,omitempty"` // of the server
	Role      string        `cbor:"5,keyasint,omitempty"`
	Token     string        `cbor:"6,keyasint,omitempty"`
	Lease     int64         `cbor:"7,keyasint,omitempty"` // of the token at its login, in seconds; 0: it does not end
	Renewable bool          `cbor:"8,keyasint,omitempty"`
	Contents  []Content     `cbor:"9,keyasint,omitempty"` // in the order of their names
}

// Content is what a task has read.
type Content struct {
	Name string `cbor:"1,keyasint"` // with which its server finds it
	Body []byte `cbor:"2,keyasint"` // the server's answer, in JSON
	// Lease is its lease when it was read, in seconds; 0: it was read with another token, and has to be read again.
	Lease int64 `cbor:"3,keyasint,omitempty"`
}

// held is what a Keeper has of a task.
type held struct {
	Record
	// busy has capacity 1, and is full while somebody asks the server for this task: no mutex is held meanwhile.
	busy   chan struct{}
	due    time.Time            // when Upkeep renews the token; zero: at once
	asked  time.Time            // when the server was last asked to renew the token; zero: by an earlier agent
	failed error                // of Upkeep's last renewal; nil: it succeeded
	pause  time.Duration        // from that failure to due
	reads  map[string]time.Time // when contents are renewed, by their name; missing: at once
	denied map[string]error     // why contents were refused at their last renewal, by their name
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
		return nil, fmt.Errorf("read what tasks have of %s: %w", cfg.Server.Name(), err)
	}
	for key, raw := range found {
		if !strings.HasPrefix(key, k.keyPrefix()) {
			continue
		}
		r, err := k.openRecord(key, raw)
		if err != nil {
			cfg.Log.Error("what a task has of a server is not readable: it has to log in again", "server", cfg.Server.Name(), "error", err)
			continue
		}
		h := k.findTask(taskKey{r.Alloc, r.Task})
		h.Record = r
	}
	return k, nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 6, Elements: maxContents, Pairs: 16, Items: 16 * maxContents})

// openRecord decrypts and decodes a record of the journal.
func (k *Keeper) openRecord(key string, raw []byte) (Record, error) {
	if len(raw) > 2*maxRecord {
		return Record{}, fmt.Errorf("read what a task has of %s: %d bytes", k.cfg.Server.Name(), len(raw))
	}
	plain, err := k.cfg.Sealer.Open(raw, []byte(key))
	if err != nil {
		return Record{}, fmt.Errorf("read what a task has of %s: %w", k.cfg.Server.Name(), err)
	}
	return k.decodeRecord(key, plain)
}

// decodeRecord decodes the decrypted record of a key. Its errors have nothing of it.
func (k *Keeper) decodeRecord(key string, plain []byte) (Record, error) {
	var r Record
	if err := decoder.Unmarshal(plain, &r); err != nil {
		return Record{}, fmt.Errorf("decode what a task has of %s: it is damaged", k.cfg.Server.Name())
	}
	if r.Version != recordVersion || k.journalKey(taskKey{r.Alloc, r.Task}) != key || r.Lease < 0 {
		return Record{}, fmt.Errorf("decode what a task has of %s: version %d, task %.64q", k.cfg.Server.Name(), r.Version, r.Task)
	}
	for _, c := range r.Contents {
		if err := k.cfg.Server.CheckContent(c); err != nil {
			return Record{}, err
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
		h = &held{busy: make(chan struct{}, 1), reads: map[string]time.Time{}, denied: map[string]error{}, Record: Record{Version: recordVersion, Alloc: key.alloc, Task: key.task}}
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
func (k *Keeper) storeRecord(ctx context.Context, h *held, r Record) error {
	key := k.journalKey(taskKey{r.Alloc, r.Task})
	plain, err := codec.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep what task %s has of %s: %w", r.Task, k.cfg.Server.Name(), err)
	}
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, key, k.cfg.Sealer.Seal(plain, []byte(key))); err != nil {
		return fmt.Errorf("keep what task %s has of %s: %w", r.Task, k.cfg.Server.Name(), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	h.Record = r
	return nil
}

// Token returns the newest token of a task for its namespace and role; "": there is none yet. It may have ended.
func (k *Keeper) Token(t Task) string {
	h := k.findTask(t.recordKey())
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.Namespace != t.Namespace || h.Role != t.Role {
		return ""
	}
	return h.Record.Token
}

// Bounds of the time between two renewals of a token.
const (
	minRenewal = 5 * time.Second
	maxRenewal = time.Hour
)

// Bounds of the pause after a renewal of a token that failed. A token for which the server was asked is not doubted either before
// maxPause has passed.
const (
	minPause = 5 * time.Second
	maxPause = time.Minute
)

// errNoIdentity is in the chain of the error of a login for which the edge has no JWT: the server was not asked.
var errNoIdentity = errors.New("a hub delivers it when there is a link")

// renewalPause is the time until a token with that lease, in seconds, is renewed: half of it.
func renewalPause(lease int64) time.Duration {
	if lease == 0 || lease > int64(2*maxRenewal/time.Second) {
		return maxRenewal
	}
	return max(time.Duration(lease)*time.Second/2, minRenewal)
}

// Renew makes sure that the token of a task is valid: it renews it, or logs in with the task's JWT ("": none) if there is
// none, if the server does not take it any more, or if it cannot live much longer. After an error the task has what it had.
func (k *Keeper) Renew(ctx context.Context, t Task, jwt string) error {
	h, unlock, err := k.lockTask(ctx, t.recordKey())
	if err != nil {
		return err
	}
	defer unlock()
	return k.renewLocked(ctx, h, t, jwt)
}

func (k *Keeper) renewLocked(ctx context.Context, h *held, t Task, jwt string) error {
	refused := error(nil)
	if k.Token(t) != "" {
		left, err := k.extendToken(ctx, h, t)
		if err == nil {
			k.setDue(h, renewalPause(left))
			if left == 0 || 2*left >= h.Lease || t.LetExpire || jwt == "" {
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
		return cmp.Or(refused, fmt.Errorf("log in to %s: the edge has no identity %s of the task yet: %w", k.cfg.Server.Name(), t.Identity, errNoIdentity))
	}
	return k.logInTask(ctx, h, t, jwt)
}

// extendToken renews a token, or looks it up if it is not renewable. It returns its lease in seconds; 0: it does not end.
func (k *Keeper) extendToken(ctx context.Context, h *held, t Task) (lease int64, err error) {
	return k.cfg.Server.Extend(ctx, h.Record, h.Renewable && h.Lease > 0 && !t.LetExpire)
}

// logInTask gets a token for a task. What was read with another one is read again: its leases end with that token.
func (k *Keeper) logInTask(ctx context.Context, h *held, t Task, jwt string) error {
	made, err := k.cfg.Server.LogIn(ctx, t, jwt)
	if err != nil {
		return err
	}
	r := h.Record
	r.Contents = slices.Clone(r.Contents)
	for i := range r.Contents {
		r.Contents[i].Lease = 0
	}
	r.Namespace, r.Role, r.Token, r.Lease, r.Renewable = t.Namespace, t.Role, made.Text, made.Lease, made.Renewable
	if err := k.storeRecord(ctx, h, r); err != nil {
		return err
	}
	k.setDue(h, renewalPause(made.Lease))
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(h.reads)
	return nil
}

// setDue records that the token was renewed, and when it is renewed next.
func (k *Keeper) setDue(h *held, pause time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.asked = time.Now()
	h.due, h.failed, h.pause = h.asked.Add(pause), nil, 0
}

// setFailed records that the token was not renewed. The pause until the next try doubles with each failure.
func (k *Keeper) setFailed(h *held, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.asked, h.failed, h.pause = time.Now(), err, min(max(2*h.pause, minPause), maxPause)
	h.due = h.asked.Add(h.pause)
}

// Failure is the error of Upkeep's last renewal of a task's token; nil: it succeeded, or there was none.
func (k *Keeper) Failure(t Task) error {
	h := k.findTask(t.recordKey())
	k.mu.Lock()
	defer k.mu.Unlock()
	return h.failed
}

// renewDue renews the token of a task if that is due. Until the pause after a failure is over it returns the same error again, and
// asks nobody.
func (k *Keeper) renewDue(ctx context.Context, h *held, t Task, jwt string) error {
	if time.Until(h.due) > 0 {
		return h.failed
	}
	err := k.renewLocked(ctx, h, t, jwt)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNoIdentity) {
		k.setFailed(h, err)
	}
	return err
}

// Upkeep does what is due for a task: it renews its token and the leases of its contents, and reads contents again. After an error the
// task has what it had. next is the time until something is due again, also after a refusal, which is returned until the server
// accepts what it refused; 0: the server is away, and the caller chooses. Upkeep may be called often: it asks only for what is due.
func (k *Keeper) Upkeep(ctx context.Context, t Task, jwt string) (next time.Duration, err error) {
	h, unlock, err := k.lockTask(ctx, t.recordKey())
	if err != nil {
		return 0, err
	}
	defer unlock()
	var failed []error
	if !t.LetExpire {
		if err := k.renewDue(ctx, h, t, jwt); err != nil {
			if !remoteapi.IsRefused(err) {
				return 0, err
			}
			failed = append(failed, err)
		}
	}
	away, err := k.renewContents(ctx, h)
	err = errors.Join(append(failed, err)...)
	if away {
		return 0, err
	}
	next = maxRenewal
	if !t.LetExpire {
		next = time.Until(h.due)
	}
	for _, at := range h.reads {
		next = min(next, time.Until(at))
	}
	return max(next, time.Second), err
}

// Run forgets what belonged to allocations that have ended, and revokes their tokens, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for pace.Rest(ctx, forgetPoll) {
		if err := k.forgetEnded(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("what tasks had of a server is not forgotten; trying again", "server", k.cfg.Server.Name(), "error", err)
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

// forgetTask removes what a task had, and its token unless the server is away: then the token ends with its lease.
func (k *Keeper) forgetTask(ctx context.Context, key taskKey, away bool) (unreachable bool, err error) {
	h, unlock, err := k.lockTask(ctx, key)
	if err != nil {
		return false, err
	}
	defer unlock()
	if h.Record.Token != "" && !away {
		err := k.cfg.Server.LogOut(ctx, h.Record)
		unreachable = err != nil && !remoteapi.IsRefused(err)
	}
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, k.journalKey(key), nil); err != nil {
		return unreachable, fmt.Errorf("forget what task %s has of %s: %w", key.task, k.cfg.Server.Name(), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.tasks, key)
	return unreachable, nil
}
