package virtual

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// machineKeyFile is the file of the key that encrypts the secrets on an edge's disk, in its data directory.
const machineKeyFile = "identity/machine-key"

// keyErasure bounds the time after which an edge that was told of its revocation has erased that key: it tries once a minute.
const keyErasure = 90 * time.Second

// keepFirstKey keeps the machine's key of the first start with this data directory. e.mu is held.
func (e *Edge) keepFirstKey() {
	if e.firstKey == nil {
		e.firstKey, _ = os.ReadFile(filepath.Join(e.Dir, machineKeyFile)) // without a key there is nothing to erase
	}
}

// forgetFirstKey forgets the key with the data directory, and returns it.
func (e *Edge) forgetFirstKey() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := e.firstKey
	e.firstKey = nil
	return key
}

// recordRevocation records when an edge was first told of its revocation.
func (r *run) recordRevocation(at time.Duration, o check.Refused) {
	if o.Code != fleet.CodeRevoked || o.From == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, told := r.revoked[o.From]; !told {
		r.revoked[o.From] = at
	}
}

// searchRevokedKey records whether the disk of an edge has the key with which its secrets there can be read, long after it was
// told of its revocation.
func (r *run) searchRevokedKey(e *Edge) {
	key := e.forgetFirstKey()
	r.mu.Lock()
	at, told := r.revoked[e.Name]
	delete(r.revoked, e.Name) // its next node may be revoked, too
	r.mu.Unlock()
	if !told || len(key) == 0 || r.elapsedTime()-at < keyErasure {
		return
	}
	o := check.SecretSearch{Who: e.Name, Files: 1}
	if now, err := os.ReadFile(filepath.Join(e.Dir, machineKeyFile)); err == nil && bytes.Equal(now, key) {
		o.Found = []string{"the file of its machine's key, which it had to erase when it was revoked"}
	}
	r.judgeAndRecord(check.Observation{Search: &o})
}
