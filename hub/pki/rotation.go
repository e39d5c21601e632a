package pki

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

// Bounds of how long edges get in with a certificate of a CA that was replaced. The default is longer than a year, since
// edges may be away for one.
const (
	DefaultCAGrace = 400 * 24 * time.Hour
	MaxCAGrace     = CAValidity
)

// methodKnowsRotation asks a hub whether its release understands the commands of a rotation.
const methodKnowsRotation rpc.Method[struct{}, bool] = "identity.knows-ca-rotation"

// Rotation replaces the cluster's CA. All fields are required.
type Rotation struct {
	Registry StateRegistry
	Hub      fleet.HubID
	Peers    *rpc.Peers
	Now      func() time.Time
}

// ServeCalls registers the handler of other hubs' calls.
func (r Rotation) ServeCalls() {
	methodKnowsRotation.Handle(r.Peers, func(context.Context, string, struct{}) (bool, error) { return true, nil })
}

// Begin makes another CA and commits it. The hubs do the rest by themselves. grace is how long edges get in with a
// certificate of the CA that is replaced. CodeConflict: another rotation is under way. CodeUnavailable: a hub does not
// answer, or is of an older release.
func (r Rotation) Begin(ctx context.Context, grace time.Duration) (state.CA, fleet.Index, error) {
	view := r.Registry.State.View()
	cas := view.CAs()
	if len(cas) == 0 {
		return state.CA{}, 0, fleet.Errorf(fleet.CodeUnavailable, "rotate the CA: this hub does not know its cluster yet")
	}
	if err := cas.Newest().UnderWay(); err != nil {
		return state.CA{}, 0, err
	}
	now := r.Now()
	if err := CheckClock(now, nil); err != nil {
		return state.CA{}, 0, err
	}
	if err := r.askHubs(ctx, view); err != nil {
		return state.CA{}, 0, err
	}
	cluster, err := r.Registry.Cluster()
	if err != nil {
		return state.CA{}, 0, err
	}
	before, err := NewAuthority(cluster)
	if err != nil {
		return state.CA{}, 0, err
	}
	next, key, err := before.NewSuccessor(cluster.ID, cas.Newest().Number+1, now)
	if err != nil {
		return state.CA{}, 0, err
	}
	next.Grace = grace
	if next.Wrapped, next.WrappedBy, err = r.Registry.Keyring.Wrap(key, next.Cert); err != nil {
		return state.CA{}, 0, err
	}
	res, err := r.Registry.Apply.Apply(ctx, state.CAStore{CA: next})
	return next, res.Index, res.Failure(err)
}

// askHubs returns an error unless every other hub answers and understands the commands of a rotation.
func (r Rotation) askHubs(ctx context.Context, view *state.View) error {
	for _, hub := range view.Hubs() {
		if hub.ID == r.Hub {
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
		_, err := methodKnowsRotation.Call(callCtx, r.Peers, hub.QUIC, struct{}{})
		cancel()
		if err != nil {
			return fleet.Errorf(fleet.CodeUnavailable, "rotate the CA: ask hub %s whether it is ready: %w", hub.ID, err).
				WithHint("a rotation needs every hub, of this release: start or upgrade it; remove a hub that is gone for good with skerry operator raft remove-peer")
		}
	}
	return nil
}

// NewSuccessor makes the CA that is to replace this one, with certificates that lead from each of the two to the other.
// It returns the CA without its key, and the key (PKCS #8 DER).
func (a *Authority) NewSuccessor(cluster string, number uint64, now time.Time) (state.CA, []byte, error) {
	key, err := identity.NewKey()
	if err != nil {
		return state.CA{}, nil, err
	}
	template, err := newCATemplate(fmt.Sprintf("Skerry CA %s %d", fleet.Short(cluster), number), now)
	if err != nil {
		return state.CA{}, nil, err
	}
	made := state.CA{Number: number, CreatedAt: now.UnixNano()}
	if made.Cert, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key); err != nil {
		return state.CA{}, nil, fmt.Errorf("make CA %d: %w", number, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return state.CA{}, nil, fmt.Errorf("encode the key of CA %d: %w", number, err)
	}
	next, err := parseAuthority(made.Cert, keyDER)
	if err != nil {
		return state.CA{}, nil, err
	}
	if made.Forward, err = a.bridgeTo(next); err == nil {
		made.Reverse, err = next.bridgeTo(a)
	}
	return made, keyDER, err
}

// bridgeTo signs the key of another CA: who knows this CA can check certificates of the other.
func (a *Authority) bridgeTo(other *Authority) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: other.cert.Subject.CommonName},
		NotBefore: other.cert.NotBefore, NotAfter: other.cert.NotAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: other.cert.KeyUsage, SubjectKeyId: other.cert.SubjectKeyId,
	}
	bridge, err := x509.CreateCertificate(rand.Reader, template, a.cert, other.cert.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign %s by %s: %w", other.cert.Subject.CommonName, a.cert.Subject.CommonName, err)
	}
	return bridge, nil
}
