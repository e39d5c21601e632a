package pki

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

// enrolTimeout bounds an enrolment, from the connection to its close. It leaves time for an election
// while the certificate is committed.
const enrolTimeout = 15 * time.Second

// Registry is the part of the cluster's state that enrolment needs.
type Registry interface {
	// Cluster returns the cluster with its secrets unencrypted, and the CA that signs now. CodeUnavailable: the cluster is not known yet, or its
	// secrets cannot be opened.
	Cluster() (state.Cluster, error)
	// StateKey returns the state key for a hub that joins (see ParseStateKey); nil: there is none yet.
	StateKey() []byte
	Token(id string) (*state.JoinToken, bool)
	// Known reports whether a hub or an edge of that name is a member already.
	Known(role, name string) bool
	// CAs returns the CAs of the cluster, the oldest first.
	CAs() state.CAs
	// AdmittedKey returns the SHA-256 of the public key with which a hub or an edge was admitted, by its common name; nil:
	// it is not known.
	AdmittedKey(subject string) []byte
	// Revocation returns why an edge was revoked, or false.
	Revocation(id fleet.NodeID) (*fleet.Revocation, bool)
	// Record commits that a certificate was issued. It refuses for a revoked edge (revoked), and for a join token that
	// was removed (token_bad) or is used up (token_expiry).
	Record(ctx context.Context, c state.Certificate) error
}

// EnrolConfig of an Enrolment.
type EnrolConfig struct {
	Registry Registry
	Hubs     func() (quic, gossip []string) // addresses that the answer names
	// CatchUp waits until Registry has everything that was committed before: an applicant that is refused may be in the
	// right by something new. nil: none.
	CatchUp func(ctx context.Context) error
	// EdgeValidity is how long the certificate of an edge is valid (0: CertValidity), and Grace how long it is
	// accepted after its end (0: EdgeGrace).
	EdgeValidity time.Duration
	Grace        time.Duration
	Now          func() time.Time
	Log          *slog.Logger // nil: discard
}

// Enrolment serves ALPN skerry-enroll/1.
type Enrolment struct{ cfg EnrolConfig }

// NewEnrolment checks the configuration.
func NewEnrolment(cfg EnrolConfig) (*Enrolment, error) {
	if cfg.Registry == nil || cfg.Hubs == nil || cfg.Now == nil {
		return nil, errors.New("make the enrolment service: registry, hubs and clock are required")
	}
	if cfg.Grace == 0 {
		cfg.Grace = EdgeGrace
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Enrolment{cfg: cfg}, nil
}

// Serve answers the one request of a connection, and returns when the other side has closed it or
// enrolTimeout is over. A refusal of the request is not an error.
func (e *Enrolment) Serve(ctx context.Context, conn *transport.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	err := e.serveEnrollRequest(ctx, conn)
	if err != nil {
		err = fmt.Errorf("enrol %s: %w", conn.RemoteAddr(), err)
	}
	return errors.Join(err, conn.CloseWith(nil))
}

func (e *Enrolment) serveEnrollRequest(ctx context.Context, conn *transport.Conn) error {
	stream, err := conn.Accept(ctx)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := stream.SetDeadline(deadline); err != nil {
		return err
	}
	m, err := syncproto.NewReader(stream).Read()
	if err != nil {
		return err
	}
	req, ok := m.(syncproto.Enroll)
	if !ok {
		return fleet.Errorf(fleet.CodeFrameBad, "expected an enrol frame, got %T", m)
	}
	var answer syncproto.Message
	enrolled, err := e.Enroll(ctx, Applicant{Addr: conn.RemoteAddr(), Cert: presentedCert(conn)}, req)
	if err != nil {
		refusal := fleet.AsError(err)
		answer = syncproto.Refused{Code: refusal.Code, Message: refusal.Message, Hint: refusal.Hint}
	} else {
		answer = enrolled
	}
	if err := syncproto.NewWriter(stream).Write(answer); err != nil {
		return err
	}
	if err := stream.CloseWrite(); err != nil {
		return err
	}
	select { // the side that closes first may lose undelivered data, so the other side closes
	case <-conn.Done():
	case <-ctx.Done():
	}
	return nil
}

// Applicant is the hub or edge that asks for a certificate.
type Applicant struct {
	Addr net.Addr
	Cert *x509.Certificate // the edge's certificate that it showed, possibly expired; nil: none
}

// presentedCert is the certificate that the peer of a connection showed, or nil.
func presentedCert(conn *transport.Conn) *x509.Certificate {
	if chain := conn.State().PeerCertificates; len(chain) > 0 {
		return chain[0]
	}
	return nil
}

// CheckEdge returns an error if the edge at the other side of a connection is revoked (CodeRevoked), if its certificate
// ended longer ago than the grace time (CodeCertExpiry), or if its CA was replaced longer ago than the grace of that
// (CodeCAEnded).
func (e *Enrolment) CheckEdge(conn *transport.Conn) *fleet.Error {
	cert := presentedCert(conn)
	if cert == nil {
		return nil // TLS does not allow this
	}
	if _, name, ok := identity.Subject(cert); ok {
		if err := e.checkRevoked("check an edge", fleet.NodeID(name)); err != nil {
			return err
		}
	}
	if err := e.checkAge(cert, e.cfg.Now()); err != nil {
		return err
	}
	return e.checkCA(cert, e.cfg.Now())
}

// checkCA returns an error if the CA that signed an edge's certificate was replaced, and its grace is over.
func (e *Enrolment) checkCA(cert *x509.Certificate, now time.Time) *fleet.Error {
	cas := e.cfg.Registry.CAs()
	for i, ca := range cas {
		end := cas.GraceEnd(i)
		if end == 0 || now.UnixNano() <= end {
			continue
		}
		parsed, err := x509.ParseCertificate(ca.Cert)
		if err != nil || cert.CheckSignatureFrom(parsed) != nil {
			continue
		}
		return fleet.Errorf(fleet.CodeCAEnded, "check an edge: its certificate is of CA %d, which was accepted until %s", ca.Number, formatTime(time.Unix(0, end))).
			WithHint("the edge renews the certificate by itself, with a proof that it has the key with which it was admitted")
	}
	return nil
}

// checkPossession returns an error unless an edge whose CA is accepted no longer has the key with which it was admitted.
// The TLS handshake has proved that it has the key of its certificate; a certificate of a stolen CA is for another key.
func (e *Enrolment) checkPossession(held *x509.Certificate, csr []byte) error {
	admitted := e.cfg.Registry.AdmittedKey(held.Subject.CommonName)
	asked, err := requestedKey(csr)
	if err != nil {
		return err
	}
	shown := sha256.Sum256(held.RawSubjectPublicKeyInfo)
	if len(admitted) > 0 && bytes.Equal(admitted, shown[:]) && bytes.Equal(admitted, asked) {
		return nil
	}
	return fleet.Errorf(fleet.CodeCertExpiry, "enrol: the CA of the certificate of %s is accepted no longer, and its key is not the one with which it was admitted", held.Subject.CommonName).
		WithHint("start the edge with --token-file and a new join token; it stays the same node and keeps its tasks and its history")
}

func (e *Enrolment) checkRevoked(doing string, id fleet.NodeID) *fleet.Error {
	if r, ok := e.cfg.Registry.Revocation(id); ok {
		return state.RevokedError(doing, r)
	}
	return nil
}

// Enroll answers one request. Errors are *fleet.Error: token_bad, token_expiry,
// cert_expiry, revoked, forbidden (the token is not for that role, the certificate of
// another edge), conflict (the name is taken), invalid, unavailable.
func (e *Enrolment) Enroll(ctx context.Context, from Applicant, req syncproto.Enroll) (syncproto.Enrolled, error) {
	log := e.cfg.Log.With("role", req.Role, "name", req.ID, "remote", from.Addr.String(), "token", req.TokenID, "renewal", from.Cert != nil)
	answer, err := e.enrollApplicant(ctx, from.Cert, req)
	if err != nil {
		refusal := fleet.AsError(err)
		log.Warn("enrolment refused", "code", refusal.Code, "error", refusal)
		return syncproto.Enrolled{}, refusal
	}
	log.Info("enrolled")
	return answer, nil
}

func (e *Enrolment) enrollApplicant(ctx context.Context, held *x509.Certificate, req syncproto.Enroll) (syncproto.Enrolled, error) {
	now := e.cfg.Now()
	cluster, err := e.cfg.Registry.Cluster()
	if err != nil {
		return syncproto.Enrolled{}, err
	}
	ca, err := NewAuthority(cluster)
	if err != nil {
		return syncproto.Enrolled{}, err
	}
	if err := CheckClock(now, ca.cert); err != nil { // the applicant can ask another hub, or later
		return syncproto.Enrolled{}, fleet.Errorf(fleet.CodeUnavailable, "enrol: the clock of this hub is wrong: it shows %s", formatTime(now)).
			WithHint("set the clock of the hub: certificates and join tokens depend on it")
	}
	byToken, err := e.checkApplicant(held, req, now)
	if err != nil && e.cfg.CatchUp != nil {
		if caughtUp := e.cfg.CatchUp(ctx); caughtUp != nil {
			return syncproto.Enrolled{}, caughtUp
		}
		byToken, err = e.checkApplicant(held, req, now)
	}
	if err != nil {
		return syncproto.Enrolled{}, err
	}
	ask := Request{Role: req.Role, Name: req.ID, CSR: req.CSR}
	if req.Role == fleet.RoleEdge {
		ask.Validity = e.cfg.EdgeValidity
	}
	cert, record, err := ca.Sign(ask, now)
	if err != nil {
		return syncproto.Enrolled{}, err
	}
	if held != nil {
		record.Replaces = serial(held)
	}
	record.CA = e.cfg.Registry.CAs().NumberFor(cluster.CACert)
	if byToken {
		record.Token = req.TokenID
		if record.Key, err = requestedKey(req.CSR); err != nil {
			return syncproto.Enrolled{}, err
		}
	}
	if err := e.cfg.Registry.Record(ctx, record); err != nil {
		return syncproto.Enrolled{}, fmt.Errorf("record a certificate: %w", err)
	}
	quic, gossip := e.cfg.Hubs()
	answer := syncproto.Enrolled{Cert: cert, CA: cluster.CACert, Cluster: cluster.ID, Hubs: quic}
	if req.Role == fleet.RoleHub {
		answer.GossipKey, answer.Gossip, answer.StateKey = cluster.GossipKey, gossip, e.cfg.Registry.StateKey()
	}
	return answer, nil
}

// checkApplicant checks a request and the certificate that the applicant showed. byToken: it is admitted by a token.
func (e *Enrolment) checkApplicant(held *x509.Certificate, req syncproto.Enroll, now time.Time) (byToken bool, err error) {
	if err := e.checkRevoked("enrol", fleet.NodeID(req.ID)); err != nil && req.Role == fleet.RoleEdge {
		return false, err
	}
	if held == nil {
		return true, e.checkNewcomer(req, now)
	}
	return e.checkRenewal(held, req, now)
}

// checkNewcomer checks an applicant without a certificate: it needs a valid token and an unused name.
func (e *Enrolment) checkNewcomer(req syncproto.Enroll, now time.Time) error {
	if err := e.checkToken(req, now); err != nil {
		return err
	}
	if !e.cfg.Registry.Known(req.Role, req.ID) {
		return nil
	}
	return fleet.Errorf(fleet.CodeConflict, "enrol: the cluster already has the %s %q", req.Role, req.ID).
		WithHint("choose another name, or start it with its own data directory")
}

// checkRenewal checks an applicant that showed a certificate: it must be for the same name. byToken: the
// certificate ended longer ago than the grace time, and the request has a valid token instead.
func (e *Enrolment) checkRenewal(held *x509.Certificate, req syncproto.Enroll, now time.Time) (byToken bool, err error) {
	role, name, _ := identity.Subject(held)
	if req.Role != role || req.ID != name {
		return false, fleet.Errorf(fleet.CodeForbidden, "enrol: the certificate of %s does not allow one for %s",
			identity.CommonName(role, name), identity.CommonName(req.Role, req.ID))
	}
	late := e.checkAge(held, now)
	switch {
	case late == nil && e.checkCA(held, now) == nil:
		return false, nil
	case req.TokenID != "":
		return true, e.checkToken(req, now)
	case late != nil:
		return false, late
	}
	return false, e.checkPossession(held, req.CSR)
}

func (e *Enrolment) checkAge(cert *x509.Certificate, now time.Time) *fleet.Error {
	until := cert.NotAfter.Add(e.cfg.Grace)
	if !now.After(until) {
		return nil
	}
	return fleet.Errorf(fleet.CodeCertExpiry, "check an edge: its certificate ended at %s, and was accepted until %s", formatTime(cert.NotAfter), formatTime(until)).
		WithHint("the edge was away for too long: start it with --token-file and a new join token; it stays the same node and keeps its tasks and its history")
}

// checkToken checks the join token of a request. Only a request with the right secret learns whether
// the token has expired or is for another role.
func (e *Enrolment) checkToken(req syncproto.Enroll, now time.Time) error {
	token, ok := e.cfg.Registry.Token(req.TokenID)
	if !ok || !identity.MatchesSecret(token.Hash, req.Secret) {
		return fleet.Errorf(fleet.CodeTokenBad, "enrol: the cluster does not know this join token").
			WithHint("it may have been removed, or the cluster was restored from a time before it existed: create a new one on a hub")
	}
	if token.ExpiresAt != 0 && now.UnixNano() >= token.ExpiresAt {
		return fleet.Errorf(fleet.CodeTokenExpiry, "enrol: the join token %s expired at %s", token.ID, formatTime(time.Unix(0, token.ExpiresAt))).
			WithHint("create a new one on a hub")
	}
	if !slices.Contains(token.Roles, req.Role) {
		return fleet.Errorf(fleet.CodeForbidden, "enrol: the join token %s is not for the role %q", token.ID, req.Role).
			WithHint("its roles are: %v", token.Roles)
	}
	if len(token.AllowKeys) == 0 {
		return nil
	}
	key, err := requestedKey(req.CSR)
	if err == nil && !token.Admits(key) {
		err = token.KeyRefusal("enrol", key)
	}
	return err
}
