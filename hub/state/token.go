package state

import (
	"bytes"
	"crypto/sha256"
	"iter"
	"sort"
	"strings"

	"skerry/fleet"
)

// JoinToken is the record of a join token. It holds a hash of the secret, never the secret.
type JoinToken struct {
	ID          string
	Hash        []byte // SHA-256 of the secret
	Roles       []string
	ExpiresAt   int64 // UnixNano; 0: never
	CreatedAt   int64
	Description string
	// NodePool and Site are set for every edge that the token admits; "": the edge's own setting.
	NodePool string
	Site     string
	MaxUses  uint64 // 0: no limit
	Uses     uint64 // number of machines that it admitted
	// AllowKeys are the SHA-256 hashes of the public keys that it admits, sorted, one after the other; empty: any key.
	AllowKeys []byte
}

// MaxAllowKeys is how many public keys a join token may name.
const MaxAllowKeys = 10_000

// Admits reports whether the token admits a machine with a public key, of which key is the SHA-256.
func (t *JoinToken) Admits(key []byte) bool {
	if len(t.AllowKeys) == 0 {
		return true
	}
	i := sort.Search(len(t.AllowKeys)/sha256.Size, func(i int) bool { return bytes.Compare(t.allowedKey(i), key) >= 0 })
	return i < len(t.AllowKeys)/sha256.Size && bytes.Equal(t.allowedKey(i), key)
}

func (t *JoinToken) allowedKey(i int) []byte {
	return t.AllowKeys[i*sha256.Size : (i+1)*sha256.Size]
}

// KeyRefusal is the error for a machine whose key the token does not admit. doing begins it.
func (t *JoinToken) KeyRefusal(doing string, key []byte) *fleet.Error {
	return fleet.Errorf(fleet.CodeForbidden, "%s: the join token %s is for other devices: its list does not have the key %x", doing, t.ID, key).
		WithHint("skerry-edge key shows the hash of a device's key; make a token with a list that has it: skerry token create --allow-keys FILE")
}

// Admission records with which join token a hub or an edge got its first certificate. Renewals keep it.
type Admission struct {
	Subject string // common name of the certificate
	Token   string // id of the join token
	// Key is the SHA-256 of the admitted public key. A machine that did not receive the answer asks
	// again with the same key, which does not count as another use.
	Key      []byte
	NodePool string // "": the edge's own setting
	Site     string
}

var tokenTable = table[JoinToken]{
	name: "tokens", key: func(r *JoinToken) []byte { return key(r.ID) }, announced: true,
	records: []record[JoinToken]{rowRecord[JoinToken](3)},
}

var certificateTable = table[Certificate]{
	name: "certificates", key: func(r *Certificate) []byte { return key(r.Serial) }, announced: true,
	records: []record[Certificate]{rowRecord[Certificate](6)},
}

var admissionTable = table[Admission]{
	name: "admissions", key: func(r *Admission) []byte { return key(r.Subject) },
	records: []record[Admission]{rowRecord[Admission](111)},
}

// storeJoinToken applies the command Token: it stores or removes a join token. An existing token keeps its
// number of uses.
func (t *tx) storeJoinToken(c Token) Result {
	k := key(c.Token.ID)
	if len(c.Token.Hash) == 0 {
		tokenTable.removeRow(t, k)
	} else {
		next := c.Token
		if old := tokenTable.currentRow(t, k); old != nil {
			next.Uses = old.Uses
		}
		tokenTable.putRow(t, &next)
	}
	tokenTable.markChanged(t)
	return Result{}
}

// storeCertificate applies the command Certificate: it records an issued certificate, and counts a use of
// its join token. It is refused if the edge was revoked, or if the token was removed or is used up.
func (t *tx) storeCertificate(c Certificate) Result {
	if id, isEdge := strings.CutPrefix(c.Subject, fleet.RoleEdge+":"); isEdge {
		if res := t.refuseRevoked("record a certificate", fleet.NodeID(id)); res != nil {
			return *res
		}
	}
	if c.Token != "" {
		if err := t.admitByToken(c); err != nil {
			return Result{Err: err}
		}
	}
	if c.Replaces != "" {
		certificateTable.removeRow(t, key(c.Replaces))
	}
	certificateTable.putRow(t, &c)
	certificateTable.markChanged(t)
	return Result{}
}

// admitByToken records the admission of a machine and counts a use of its join token. The token's node
// pool and site replace those of a known node. It fails if the token is missing or used up.
func (t *tx) admitByToken(c Certificate) *fleet.Error {
	known := tokenTable.currentRow(t, key(c.Token))
	if known == nil {
		return fleet.Errorf(fleet.CodeTokenBad, "admit %s: the join token %s was revoked", c.Subject, c.Token).
			WithHint("make another one on a hub: skerry token create")
	}
	token := *known
	if !token.Admits(c.Key) {
		return token.KeyRefusal("admit "+c.Subject, c.Key)
	}
	next := &Admission{Subject: c.Subject, Token: c.Token, Key: c.Key, NodePool: token.NodePool, Site: token.Site}
	old := admissionTable.currentRow(t, key(c.Subject))
	if old != nil {
		if next.NodePool == "" {
			next.NodePool = old.NodePool
		}
		if next.Site == "" {
			next.Site = old.Site
		}
	}
	if old == nil || old.Token != c.Token || len(c.Key) == 0 || !bytes.Equal(old.Key, c.Key) {
		if token.MaxUses > 0 && token.Uses >= token.MaxUses {
			return fleet.Errorf(fleet.CodeTokenExpiry, "admit %s: the join token %s was used %d times, which is its limit", c.Subject, token.ID, token.Uses).
				WithHint("make another one on a hub: skerry token create")
		}
		token.Uses++
		tokenTable.putRow(t, &token)
		tokenTable.markChanged(t)
	}
	admissionTable.putRow(t, next)
	if id, isEdge := strings.CutPrefix(c.Subject, fleet.RoleEdge+":"); isEdge {
		if n := nodeTable.currentRow(t, key(id)); n != nil {
			t.storeNodeDescription(&n.Node, &pendingEvals{}) // no evaluations: without a certificate it was away
		}
	}
	return nil
}

// placeAsAdmitted sets the node pool and site of a node to those of its admission, if it has one.
func (t *tx) placeAsAdmitted(n *fleet.Node) {
	a := admissionTable.currentRow(t, key(subjectOf(n.ID)))
	if a == nil {
		return
	}
	if a.NodePool != "" {
		n.NodePool = a.NodePool
	}
	if a.Site != "" {
		n.Site = a.Site
	}
}

// Token returns a join token by its id; ok is false if there is none.
func (v *View) Token(id string) (*JoinToken, bool) {
	return tokenTable.watchRow(v, key(id))
}

// Tokens iterates over the join tokens by id, expired and used-up ones included.
func (v *View) Tokens() iter.Seq[*JoinToken] {
	return tokenTable.watchRows(v)
}

// AdmittedKey returns the SHA-256 of the public key with which a hub or an edge was admitted, by its common name; nil: it
// is not known.
func (v *View) AdmittedKey(subject string) []byte {
	if a, ok := admissionTable.watchRow(v, key(subject)); ok {
		return a.Key
	}
	return nil
}

// CertifiedBy returns the number of the CA that signed the newest certificate of each common name.
func (v *View) CertifiedBy() map[string]uint64 {
	by := map[string]uint64{}
	for c := range certificateTable.watchRows(v) {
		by[c.Subject] = max(by[c.Subject], c.CA, 1)
	}
	return by
}

// AdmittedBy returns the admissions of a join token, by common name.
func (v *View) AdmittedBy(token string) []*Admission {
	var out []*Admission
	for a := range admissionTable.watchRows(v) {
		if a.Token == token {
			out = append(out, a)
		}
	}
	return out
}
