package pki

import (
	"context"
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

// enrolTimeout bounds a conversation, from the connection to the goodbye. It
// leaves time for an election while the certificate is recorded.
const enrolTimeout = 15 * time.Second

// Registry is what enrolment asks of the cluster's state.
type Registry interface {
	Cluster() (*state.Cluster, bool)
	Token(id string) (*state.JoinToken, bool)
	// Known reports whether a hub or an edge of that name is a member already.
	Known(role, name string) bool
	// Record commits that a certificate was issued.
	Record(ctx context.Context, c state.Certificate) error
}

// EnrolConfig of an Enrolment.
type EnrolConfig struct {
	Registry Registry
	Hubs     func() (quic, gossip []string) // addresses that the answer names
	// EdgeValidity is how long the certificate of an edge is valid. 0: CertValidity.
	EdgeValidity time.Duration
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
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Enrolment{cfg: cfg}, nil
}

// Serve answers the one request of a connection, and returns when the other side
// has hung up. What went wrong with the conversation itself is its error; a
// refusal is not.
func (e *Enrolment) Serve(ctx context.Context, conn *transport.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	err := e.converse(ctx, conn)
	if err != nil {
		err = fmt.Errorf("enrol %s: %w", conn.RemoteAddr(), err)
	}
	return errors.Join(err, conn.CloseWith(nil))
}

func (e *Enrolment) converse(ctx context.Context, conn *transport.Conn) error {
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
	enrolled, err := e.Enroll(ctx, conn.RemoteAddr(), req)
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
	select { // who hangs up first loses what is not delivered: it is theirs to do
	case <-conn.Done():
	case <-ctx.Done():
	}
	return nil
}

// Enroll answers one request. Errors are *fleet.Error: token_bad, token_expiry,
// forbidden (the token is not for that role), conflict (the name is taken),
// invalid, unavailable.
func (e *Enrolment) Enroll(ctx context.Context, from net.Addr, req syncproto.Enroll) (syncproto.Enrolled, error) {
	log := e.cfg.Log.With("role", req.Role, "name", req.ID, "remote", from.String(), "token", req.TokenID)
	answer, err := e.enroll(ctx, req)
	if err != nil {
		refusal := fleet.AsError(err)
		log.Warn("enrolment refused", "code", refusal.Code, "error", refusal)
		return syncproto.Enrolled{}, refusal
	}
	log.Info("enrolled")
	return answer, nil
}

func (e *Enrolment) enroll(ctx context.Context, req syncproto.Enroll) (syncproto.Enrolled, error) {
	now := e.cfg.Now()
	cluster, ok := e.cfg.Registry.Cluster()
	if !ok {
		return syncproto.Enrolled{}, fleet.Errorf(fleet.CodeUnavailable, "enrol: this hub is not part of a cluster yet")
	}
	ca, err := NewAuthority(*cluster)
	if err != nil {
		return syncproto.Enrolled{}, err
	}
	if err := CheckClock(now, ca.cert); err != nil { // whoever asks can ask another hub, or later
		return syncproto.Enrolled{}, fleet.Errorf(fleet.CodeUnavailable, "enrol: the clock of this hub is wrong, it says %s", now.UTC().Format(time.RFC3339)).
			WithHint("set it: certificates and join tokens go by it")
	}
	if err := e.checkToken(req, now); err != nil {
		return syncproto.Enrolled{}, err
	}
	if e.cfg.Registry.Known(req.Role, req.ID) {
		return syncproto.Enrolled{}, fleet.Errorf(fleet.CodeConflict, "enrol: the cluster has the %s %q already", req.Role, req.ID).
			WithHint("take another name, or keep the data directory of the one that is there")
	}
	ask := Request{Role: req.Role, Name: req.ID, CSR: req.CSR}
	if req.Role == syncproto.RoleEdge {
		ask.Validity = e.cfg.EdgeValidity
	}
	cert, record, err := ca.Sign(ask, now)
	if err != nil {
		return syncproto.Enrolled{}, err
	}
	if err := e.cfg.Registry.Record(ctx, record); err != nil {
		return syncproto.Enrolled{}, fmt.Errorf("record a certificate: %w", err)
	}
	quic, gossip := e.cfg.Hubs()
	answer := syncproto.Enrolled{Cert: cert, CA: cluster.CACert, Cluster: cluster.ID, Hubs: quic}
	if req.Role == syncproto.RoleHub {
		answer.GossipKey, answer.Gossip = cluster.GossipKey, gossip
	}
	return answer, nil
}

// checkToken says which of a token's parts is wrong only to who knows its secret.
func (e *Enrolment) checkToken(req syncproto.Enroll, now time.Time) error {
	token, ok := e.cfg.Registry.Token(req.TokenID)
	if !ok || !identity.MatchesSecret(token.Hash, req.Secret) {
		return fleet.Errorf(fleet.CodeTokenBad, "enrol: the cluster does not know this join token").
			WithHint("it may have been removed, or the cluster restored from before it was made: take a new one from a hub")
	}
	if token.ExpiresAt != 0 && now.UnixNano() >= token.ExpiresAt {
		return fleet.Errorf(fleet.CodeTokenExpiry, "enrol: the join token %s expired at %s", token.ID, time.Unix(0, token.ExpiresAt).UTC().Format(time.RFC3339)).
			WithHint("make a new one on a hub")
	}
	if !slices.Contains(token.Roles, req.Role) {
		return fleet.Errorf(fleet.CodeForbidden, "enrol: the join token %s is not for the role %q", token.ID, req.Role).
			WithHint("it is for: %v", token.Roles)
	}
	return nil
}
