package secrets

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/codec"
	"skerry/internal/sealing"
)

const (
	// commitTries is how often a change is encrypted again because the active key was replaced meanwhile.
	commitTries = 5
	// maxItems bounds the items of a decrypted variable; keys and values together have at most 64 KiB.
	maxItems = 1 << 16
)

// Wrapper encrypts root keys with a key that is kept outside the replicated state.
type Wrapper interface {
	// Wrap encrypts a root key, and returns the name of the key that did so. bound is given to Unwrap again.
	Wrap(plain, bound []byte) (wrapped []byte, by string, err error)
	// Unwrap reverses Wrap. CodeUnavailable: the key named by is missing, and the error says what to do.
	Unwrap(by string, wrapped, bound []byte) ([]byte, error)
}

// Config of Secrets. All but Signs is required.
type Config struct {
	State *state.Store
	Apply state.Applier // commits commands from any hub
	Lead  state.Applier // commits commands only while this hub leads
	Wrap  Wrapper
	Signs bool // the leader makes the first signing key at once, for verifiers that read the public keys before a task runs
	Now   func() time.Time
	Log   *slog.Logger
}

// Secrets encrypts and decrypts the items of variables. It is safe for concurrent use.
type Secrets struct {
	cfg Config

	mu      sync.Mutex
	keys    map[string]sealing.Key // decrypted root keys by id
	signing SigningKey             // the last one that was used
}

// New returns the Secrets of a hub. It starts nothing.
func New(cfg Config) *Secrets { return &Secrets{cfg: cfg, keys: map[string]sealing.Key{}} }

// Decrypt decrypts the items of a variable. CodeUnavailable: this hub lacks the key, and the error says what to do.
// CodeInvalid: they are damaged.
func (s *Secrets) Decrypt(v *state.Variable) (fleet.VariableItems, error) {
	items, err := s.decryptItems(v)
	if err != nil {
		e := fleet.AsError(err)
		return nil, fleet.Errorf(e.Code, "decrypt variable %s in namespace %s: %s", v.Path, v.Namespace, e.Message).WithHint("%s", e.Hint)
	}
	return items, nil
}

func (s *Secrets) decryptItems(v *state.Variable) (fleet.VariableItems, error) {
	row, ok := s.cfg.State.View().RootKey(v.Sealed.KeyID)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeInvalid, "there is no root key %s", v.Sealed.KeyID)
	}
	key, err := s.unwrapKey(row)
	if err != nil {
		return nil, err
	}
	plain, err := key.OpenApart(v.Sealed.Nonce, v.Sealed.Data, boundTo(v.Namespace, v.Path, v.Sealed.KeyID))
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "its items were changed, or encrypted for another variable")
	}
	return decodeItems(plain)
}

var itemsDecoder = codec.NewDecoder(codec.Limits{Nesting: 4, Elements: maxItems, Pairs: maxItems, Items: maxItems})

// decodeItems reads the decrypted items of a variable.
func decodeItems(plain []byte) (fleet.VariableItems, error) {
	var items fleet.VariableItems
	if err := itemsDecoder.Unmarshal(plain, &items); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "its items cannot be read: %v", err)
	}
	return items, nil
}

// boundTo returns the additional data that binds encrypted items to their variable and key.
func boundTo(ns, path, keyID string) []byte {
	return []byte(strings.Join([]string{"skerry-variable/1", ns, path, keyID}, "\x00"))
}

// encryptItems encrypts the items of a variable with a root key.
func (s *Secrets) encryptItems(row *state.RootKey, ns, path string, items fleet.VariableItems) (state.SealedItems, error) {
	key, err := s.unwrapKey(row)
	if err != nil {
		return state.SealedItems{}, err
	}
	nonce, data := key.SealApart(codec.AppendLean(nil, items), boundTo(ns, path, row.KeyID))
	return state.SealedItems{KeyID: row.KeyID, Nonce: nonce, Data: data}, nil
}

// unwrapKey returns a root key, decrypted.
func (s *Secrets) unwrapKey(row *state.RootKey) (sealing.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key, ok := s.keys[row.KeyID]; ok {
		return key, nil
	}
	plain, err := s.cfg.Wrap.Unwrap(row.WrappedBy, row.Wrapped, []byte(row.KeyID))
	if err != nil {
		return sealing.Key{}, err
	}
	key, err := rootKeyOf(plain)
	if err != nil {
		return sealing.Key{}, err
	}
	for id := range s.keys { // those that were removed
		if _, ok := s.cfg.State.View().RootKey(id); !ok {
			delete(s.keys, id)
		}
	}
	s.keys[row.KeyID] = key
	return key, nil
}

func rootKeyOf(plain []byte) (sealing.Key, error) {
	key, err := sealing.NewKey(plain)
	if err != nil {
		return key, fleet.Errorf(fleet.CodeInvalid, "read a root key: %v", err)
	}
	return key, nil
}

// Commit encrypts the items of a variable with the active root key, which it makes if there is none, and commits the
// command that has them. It repeats this if the key was replaced meanwhile.
func (s *Secrets) Commit(ctx context.Context, ns, path string, items fleet.VariableItems, command func(state.SealedItems) state.Command) (res state.Result, err error) {
	for range commitTries {
		row, err := s.activeKey(ctx)
		if err != nil {
			return res, err
		}
		sealed, err := s.encryptItems(row, ns, path, items)
		if err != nil {
			e := fleet.AsError(err)
			return res, fleet.Errorf(e.Code, "encrypt variable %s: %s", path, e.Message).WithHint("%s", e.Hint)
		}
		if res, err = s.cfg.Apply.Apply(ctx, command(sealed)); err != nil {
			return res, err
		}
		if res.Err == nil || res.Err.Code != fleet.CodeUnavailable {
			return res, res.Failure(nil)
		}
		if err := s.cfg.State.WaitIndex(ctx, res.Index); err != nil {
			return res, err
		}
	}
	return res, res.Failure(nil)
}

// activeKey returns the root key that encrypts. It makes the first one.
func (s *Secrets) activeKey(ctx context.Context) (*state.RootKey, error) {
	if row, ok := s.cfg.State.View().ActiveRootKey(); ok {
		return row, nil
	}
	if _, err := s.addKey(ctx, false, true); err != nil {
		return nil, err
	}
	row, ok := s.cfg.State.View().ActiveRootKey()
	if !ok {
		return nil, fleet.Errorf(fleet.CodeUnavailable, "make the first root key: it is not active yet").WithHint("repeat it")
	}
	return row, nil
}

// Rotate makes a new root key active, and returns it. With full the variables that are encrypted with other keys will be
// encrypted with the new one, by Lead.
func (s *Secrets) Rotate(ctx context.Context, full bool) (fleet.RootKey, error) {
	id, err := s.addKey(ctx, full, false)
	if err != nil {
		return fleet.RootKey{}, err
	}
	row, ok := s.cfg.State.View().RootKey(id)
	if !ok {
		return fleet.RootKey{}, fleet.Errorf(fleet.CodeConflict, "rotate the root key: the new key %s was removed again", id)
	}
	s.cfg.Log.Info("root key rotated", "root_key", id, "full", full)
	return row.RootKey, nil
}

// addKey draws a root key, commits it as the active one, and waits until this hub has it.
func (s *Secrets) addKey(ctx context.Context, full, first bool) (id string, err error) {
	plain := sealing.DrawKey()
	row := state.RootKey{RootKey: fleet.RootKey{KeyID: fleet.NewUUID(nil), Algorithm: fleet.AlgorithmAES256GCM, CreateTime: s.cfg.Now().UnixNano()}}
	if row.Wrapped, row.WrappedBy, err = s.cfg.Wrap.Wrap(plain, []byte(row.KeyID)); err != nil {
		return "", err
	}
	if !first && s.isSigning() {
		if row.Signing, err = s.newSigningKey(row.KeyID); err != nil {
			return "", err
		}
	}
	res, err := s.cfg.Apply.Apply(ctx, state.RootKeyStore{Key: row, Full: full, First: first})
	if err = res.Failure(err); err != nil {
		return "", err
	}
	return row.KeyID, s.cfg.State.WaitIndex(ctx, res.Index)
}

// isSigning tells whether a new root key has a signing key from the start, so that verifiers know it before it signs.
// Otherwise it gets one when a task needs it: to make one takes a second on a slow machine.
func (s *Secrets) isSigning() bool {
	active, ok := s.cfg.State.View().ActiveRootKey()
	return s.cfg.Signs || ok && active.Signing != nil
}

// CheckKeys returns an error if this hub lacks the key that wraps a root key in v with which variables are encrypted, or the
// active one. v may be the state of a snapshot: root keys that are here as well stay wrapped as they are.
func (s *Secrets) CheckKeys(v *state.View) error {
	for row := range v.RootKeys() {
		use := ""
		if row.State == fleet.RootKeyActive {
			use = "encrypt variables with the root key " + row.KeyID
		}
		for used := range v.VariablesByRootKey(row.KeyID) {
			use = "decrypt variables, such as " + used.Path
			break
		}
		if use == "" {
			continue
		}
		if live, ok := s.cfg.State.View().RootKey(row.KeyID); ok {
			row = live
		}
		plain, err := s.cfg.Wrap.Unwrap(row.WrappedBy, row.Wrapped, []byte(row.KeyID))
		if err == nil {
			_, err = rootKeyOf(plain)
		}
		if err != nil {
			e := fleet.AsError(err)
			return fleet.Errorf(e.Code, "%s: %s", use, e.Message).WithHint("%s", e.Hint)
		}
	}
	return nil
}
