package identities

import (
	"context"
	"fmt"

	"skerry/internal/codec"
	"skerry/syncproto/nodekey"
)

// signingKey is the journal's key of the edge's own keys.
const signingKey = "identitykeys"

const (
	keysVersion = 1
	maxKeys     = 1 << 10
)

// signingKeys are the edge's own keys for identities. The edge signs with current, which hubs publish, and announces next
// until they publish that one: a link that ends meanwhile leaves a key that verifiers know.
type signingKeys struct{ current, next *nodekey.Key }

// keysRecord is signingKeys in the journal, before they are encrypted.
type keysRecord struct {
	Version int    `cbor:"1,keyasint"`
	Current []byte `cbor:"2,keyasint,omitempty"`
	Next    []byte `cbor:"3,keyasint,omitempty"`
}

// openKeys decrypts and decodes the edge's keys.
func openKeys(s Sealer, raw []byte) (signingKeys, error) {
	if len(raw) > maxKeys {
		return signingKeys{}, fmt.Errorf("read the key for identities: %d bytes", len(raw))
	}
	plain, err := s.Open(raw, []byte(signingKey))
	if err != nil {
		return signingKeys{}, fmt.Errorf("read the key for identities: %w", err)
	}
	return decodeKeys(plain)
}

// decodeKeys decodes a decrypted keysRecord.
func decodeKeys(plain []byte) (keys signingKeys, err error) {
	var r keysRecord
	if err := decoder.Unmarshal(plain, &r); err != nil {
		return keys, fmt.Errorf("read the key for identities: %w", err)
	}
	if r.Version != keysVersion {
		return keys, fmt.Errorf("read the key for identities: version %d", r.Version)
	}
	if r.Current != nil {
		if keys.current, err = nodekey.Parse(r.Current); err != nil {
			return signingKeys{}, err
		}
	}
	if r.Next != nil {
		if keys.next, err = nodekey.Parse(r.Next); err != nil {
			return signingKeys{}, err
		}
	}
	return keys, nil
}

// encodeKeys reverses decodeKeys.
func (s signingKeys) encodeKeys() ([]byte, error) {
	r := keysRecord{Version: keysVersion}
	var err error
	if s.current != nil {
		if r.Current, err = s.current.Secret(); err != nil {
			return nil, err
		}
	}
	if s.next != nil {
		if r.Next, err = s.next.Secret(); err != nil {
			return nil, err
		}
	}
	return codec.Marshal(r)
}

// PublicKey returns the public half of the newest key, which the hubs have to publish; "": the edge has needed none.
func (k *Keeper) PublicKey() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.keys.next != nil:
		return k.keys.next.Public()
	case k.keys.current != nil:
		return k.keys.current.Public()
	}
	return ""
}

// RotateKey has the edge make another key when a hub delivers tokens the next time.
func (k *Keeper) RotateKey() {
	k.changing <- struct{}{}
	k.keyMade = false
	<-k.changing
}

// keepKeys takes the key that hubs publish into use. An edge with an offline identity makes a key in the first session of
// each process: that of a copy of its data directory is published no longer once the other machine is admitted. k.changing
// is held.
func (k *Keeper) keepKeys(ctx context.Context, published string) error {
	k.mu.Lock()
	keys := k.keys
	needed := false
	for _, r := range k.tokens {
		needed = needed || r.Identity.Offline
	}
	k.mu.Unlock()
	adopt := keys.next != nil && published == nodekey.ID(k.cfg.Node, keys.next.Public())
	if adopt {
		keys.current, keys.next = keys.next, nil
	}
	made := needed && !k.keyMade
	if made {
		next, err := nodekey.New()
		if err != nil {
			return err
		}
		keys.next = next
	}
	if !adopt && !made {
		return nil
	}
	plain, err := keys.encodeKeys()
	if err != nil {
		return fmt.Errorf("keep the key for identities: %w", err)
	}
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, signingKey, k.cfg.Sealer.Seal(plain, []byte(signingKey))); err != nil {
		return fmt.Errorf("keep the key for identities: %w", err)
	}
	k.mu.Lock()
	k.keys = keys
	k.noteChange() // a token may wait for the key
	k.mu.Unlock()
	if made {
		k.keyMade = true
		k.cfg.Announce()
	}
	return nil
}
