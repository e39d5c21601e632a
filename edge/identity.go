package edge

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/enroll"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

// Files of the identity. The certificate is written last: if it exists, the edge is enrolled.
const (
	nodeIDFile = "identity/node-id"
	keyFile    = "identity/key.pem"
	caFile     = "identity/ca.pem"
	certFile   = "identity/cert.pem"

	hubFile = "identity/hub.pem" // only in a hub's data directory
)

// Bounds of the pauses between attempts to enrol.
const (
	enrolPauseMin = 500 * time.Millisecond
	enrolPauseMax = 30 * time.Second
)

// enrolHandshake bounds the wait for a hub's first answer: twice what a satellite link needs.
const enrolHandshake = 5 * time.Second

// openIdentity reads the identity of this machine. Without a certificate it draws a node id, unless one is
// stored, and reads the join token. It refuses a hub's data directory.
func (e *Edge) openIdentity() error {
	if _, err := os.Stat(e.dir.File(hubFile)); err == nil {
		return fleet.Errorf(fleet.CodeConflict, "open data directory %s: it belongs to a hub", e.dir.File()).
			WithHint("give the edge a data directory of its own")
	}
	b, ok, err := e.dir.Read(nodeIDFile)
	if err != nil {
		return err
	}
	e.node = fleet.NodeID(strings.TrimSpace(string(b)))
	if !ok || !identity.ValidName(fleet.RoleEdge, string(e.node)) {
		e.node = fleet.NodeID(fleet.NewUUID(nil))
	}
	cert, enrolled, err := e.dir.Read(certFile)
	if err != nil {
		return err
	}
	if enrolled {
		return e.loadIdentity(cert)
	}
	if string(e.node) != strings.TrimSpace(string(b)) {
		if err := e.dir.Write(nodeIDFile, []byte(string(e.node)+"\n"), 0o600); err != nil {
			return err
		}
	}
	return e.loadJoinToken()
}

// loadIdentity sets e.identity and e.node from the encoded certificate and the stored key and CA.
func (e *Edge) loadIdentity(cert []byte) error {
	key, _, err := e.dir.Read(keyFile)
	if err != nil {
		return err
	}
	ca, _, err := e.dir.Read(caFile)
	if err != nil {
		return err
	}
	id, err := identity.Load(cert, key, ca)
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "read the identity in %s: %w", e.dir.File("identity"), err).
			WithHint("restore the folder, or remove %s and start with a join token", e.dir.File(certFile))
	}
	e.setIdentity(id)
	e.node = fleet.NodeID(id.Name)
	return nil
}

// setIdentity makes the edge use an identity, which is on the disk.
func (e *Edge) setIdentity(id *identity.Identity) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.identity, e.heldCAs = id, identity.CAIDs(id.Authorities())
}

// namesOfCAs returns the names of the CAs of which the edge accepts hubs; "": it is not enrolled yet.
func (e *Edge) namesOfCAs() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heldCAs
}

// loadJoinToken sets e.token from the configured file, for an edge without a certificate. It returns an error if
// no hub or no token is configured.
func (e *Edge) loadJoinToken() (err error) {
	if len(e.cfg.Hubs) == 0 {
		return fleet.Errorf(fleet.CodeInvalid, "join a cluster: no hub is given").WithHint("name one with --hub HOST:PORT")
	}
	if e.cfg.TokenFile == "" {
		return fleet.Errorf(fleet.CodeTokenBad, "join a cluster: no join token is given").
			WithHint("name its file with --token-file; the first hub keeps one in DATA/join-token")
	}
	e.token, err = e.readToken()
	return err
}

// isEnrolled reports whether the edge has a certificate.
func (e *Edge) isEnrolled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.identity != nil
}

// trustedNow returns the latest time that has certainly passed by the clocks of hubs, or zero if none is known. It
// ignores the wall clock, so that a board whose clock says 1970 or 2100 can connect.
func (e *Edge) trustedNow() time.Time {
	if floor := e.journal.TimeFloor(); floor != 0 {
		return time.Unix(0, floor)
	}
	return time.Time{}
}

// clientTLS returns the TLS configuration of the link, with the newest certificate.
func (e *Edge) clientTLS() (*tls.Config, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.identity.ClientTLS(e.trustedNow), nil
}

// enrolWithRetry asks the hubs for a certificate until one issues it, which it saves, or refuses for good. An
// error needs a person, or ctx has ended.
func (e *Edge) enrolWithRetry(ctx context.Context) error {
	key, err := e.enrolKey()
	if err != nil {
		return err
	}
	pause := &enrolPause{ExponentialBackOff: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(enrolPauseMin), backoff.WithMaxInterval(enrolPauseMax), backoff.WithMaxElapsedTime(0),
	)}
	applicant := enroll.Applicant{
		Token: e.token, Role: fleet.RoleEdge, ID: string(e.node), Name: e.cfg.Name, Key: key, Now: e.trustedNow,
	}
	return backoff.Retry(func() error {
		id, answer, err := e.enrolOnce(ctx, e.cfg.Hubs, applicant)
		if err == nil {
			err = e.saveIdentity(ctx, id, answer)
		}
		pause.busy = errors.Is(err, transport.ErrBusy)
		if err == nil {
			e.setIdentity(id)
		}
		e.mu.Lock()
		e.enrolErr = err
		e.mu.Unlock()
		switch {
		case err == nil:
			e.log.Info("edge enrolled", "node_id", string(e.node), "cluster", answer.Cluster)
		case isFinalError(err):
			return backoff.Permanent(err)
		case ctx.Err() == nil:
			e.log.Warn("no hub has enrolled this edge yet, trying again", "error", err)
		}
		return err
	}, backoff.WithContext(pause, ctx))
}

// enrolPause draws the pauses between attempts to enrol: exponential, but short after a busy hub.
type enrolPause struct {
	*backoff.ExponentialBackOff
	busy  bool // the last attempt found a busy hub
	tries int  // attempts since the first busy one
}

// enrolLoaded is the number of attempts during which a hub counts as overloaded: it was busy before and does not
// answer now.
const enrolLoaded = 30

// NextBackOff returns the next pause. It implements backoff.BackOff.
func (p *enrolPause) NextBackOff() time.Duration {
	if !p.busy && (p.tries == 0 || p.tries >= enrolLoaded) {
		p.tries = 0
		return p.ExponentialBackOff.NextBackOff()
	}
	p.tries++
	return link.BusyDelay(p.tries - 1)
}

// isFinalError reports whether an error of the enrolment needs a person, so that asking again cannot help.
func isFinalError(err error) bool {
	switch fleet.CodeOf(err) {
	case fleet.CodeTokenBad, fleet.CodeTokenExpiry, fleet.CodeCertExpiry, fleet.CodeCAMismatch, fleet.CodeForbidden, fleet.CodeRevoked,
		fleet.CodeConflict, fleet.CodeInvalid, fleet.CodeVersion, fleet.CodeUnsupported:
		return true
	}
	return false
}

// enrolOnce asks one hub after the other for a certificate, from one new socket, until one issues it or refuses
// for good. It saves nothing.
func (e *Edge) enrolOnce(ctx context.Context, hubs []string, a enroll.Applicant) (*identity.Identity, syncproto.Enrolled, error) {
	socket, err := e.cfg.ListenPacket(ctx)
	if err != nil {
		return nil, syncproto.Enrolled{}, fleet.Errorf(fleet.CodeUnavailable, "join a cluster: open a socket: %w", err)
	}
	endpoint, err := transport.New(transport.Config{Conn: socket, HandshakeTimeout: enrolHandshake, Log: e.log.With("component", "transport")})
	if err != nil {
		return nil, syncproto.Enrolled{}, errors.Join(err, socket.Close())
	}
	var failed []error
	for _, hub := range hubs {
		id, answer, err := enrolAt(ctx, link.TimedDialer{Endpoint: endpoint, Time: &e.answerTime}, hub, a)
		if err == nil || isFinalError(err) || ctx.Err() != nil {
			return id, answer, errors.Join(err, endpoint.Close())
		}
		failed = append(failed, err)
	}
	return nil, syncproto.Enrolled{}, errors.Join(append(failed, endpoint.Close())...)
}

// enrolAt asks one hub for a certificate.
func enrolAt(ctx context.Context, d enroll.Dialer, hub string, a enroll.Applicant) (*identity.Identity, syncproto.Enrolled, error) {
	addr, err := net.ResolveUDPAddr("udp", hub)
	if err != nil {
		return nil, syncproto.Enrolled{}, fleet.Errorf(fleet.CodeUnavailable, "join a cluster: resolve the address of hub %s: %w", hub, err)
	}
	id, answer, err := enroll.Enroll(ctx, d, addr, a)
	if err != nil {
		return nil, syncproto.Enrolled{}, fmt.Errorf("ask %s for a certificate: %w", hub, err)
	}
	return id, answer, nil
}

// saveIdentity journals the cluster and its hubs, and writes the CAs and the certificate that a hub issued, the
// certificate last: it makes the edge enrolled.
func (e *Edge) saveIdentity(ctx context.Context, id *identity.Identity, answer syncproto.Enrolled) error {
	known := e.journal.Link()
	known.Hubs, known.Cluster = answer.Hubs, answer.Cluster
	if err := e.journal.PutLink(ctx, known, nil); err != nil {
		return err
	}
	if err := e.dir.Write(caFile, identity.EncodeCerts(id.Authorities()), 0o600); err != nil {
		return err
	}
	return e.dir.Write(certFile, identity.EncodeCert(id.Cert.Raw), 0o600)
}

// enrolKey returns the stored key of an earlier attempt, or makes one and writes it. It is written before a hub
// sees it, because the hub binds the node id to it.
func (e *Edge) enrolKey() (*ecdsa.PrivateKey, error) {
	text, ok, err := e.dir.Read(keyFile)
	if err != nil {
		return nil, err
	}
	if ok {
		key, err := identity.DecodeKey(text)
		if err == nil {
			return key, nil
		}
		e.log.Warn("key of an earlier attempt to enrol not readable: making another", "path", e.dir.File(keyFile), "error", err)
	}
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	if text, err = identity.EncodeKey(key); err != nil {
		return nil, err
	}
	return key, e.dir.Write(keyFile, text, 0o600)
}
