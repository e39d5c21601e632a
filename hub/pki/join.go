package pki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/internal/datadir"
	"skerry/syncproto"
	"skerry/syncproto/enroll"
	"skerry/syncproto/identity"
)

// Time that one hub gets to answer an enrolment: in the first round, and at most.
const (
	firstEnrol = 3 * time.Second
	maxEnrol   = 20 * time.Second
)

// Bootstrap makes a cluster: its CA, this hub's certificate, and two join tokens (for edges and for
// hubs). It writes all of it to the data directory, the tokens for the operator; Pending has the parts
// that are still to be committed. keys get the state key.
func Bootstrap(ctx context.Context, region, name string, dir *datadir.Dir, keys *StateKeys, now time.Time) (Credentials, error) {
	if err := keys.Check(ctx); err != nil {
		return Credentials{}, fmt.Errorf("make a cluster: %w", err)
	}
	cluster, err := NewCluster(region, now)
	if err != nil {
		return Credentials{}, err
	}
	authority, err := NewAuthority(cluster)
	if err != nil {
		return Credentials{}, err
	}
	id, issued, err := authority.Issue(fleet.RoleHub, name, now)
	if err != nil {
		return Credentials{}, err
	}
	stateKey := NewStateKey()
	seal, err := stateKey.Seal(cluster)
	if err != nil {
		return Credentials{}, err
	}
	if err := keys.Add(ctx, stateKey); err != nil {
		return Credentials{}, err
	}
	c := Credentials{Identity: id, GossipKey: cluster.GossipKey}
	cluster = cluster.WithSeal(seal)
	c.Pending = &Pending{Cluster: &cluster, Certificate: &issued}
	for _, made := range []struct{ role, file string }{
		{fleet.RoleEdge, JoinTokenFile}, {fleet.RoleHub, HubJoinTokenFile},
	} {
		token, kept := NewToken(cluster, []string{made.role}, 0, now)
		kept.Description = "made with the cluster, in " + made.file
		if err := dir.Write(made.file, []byte(token.String()+"\n"), 0o600); err != nil {
			return Credentials{}, err
		}
		c.Pending.Tokens = append(c.Pending.Tokens, kept)
	}
	return c, c.saveCredentials(dir)
}

// JoinConfig has the settings of Join. All fields are required.
type JoinConfig struct {
	Name  string   // of the hub
	Hubs  []string // addresses to ask
	Token identity.Token
	Keys  *StateKeys // get the state key
	Now   func() time.Time
	Log   *slog.Logger
}

// Join enrols with the first hub that answers, and asks all of them again until
// one does or ctx ends. A token that is refused is final.
func Join(ctx context.Context, cfg JoinConfig, dir *datadir.Dir, dialer enroll.Dialer) (Credentials, error) {
	if err := cfg.Keys.Check(ctx); err != nil {
		return Credentials{}, fmt.Errorf("join the cluster: %w", err)
	}
	key, err := identity.NewKey()
	if err != nil {
		return Credentials{}, err
	}
	applicant := enroll.Applicant{Token: cfg.Token, Role: fleet.RoleHub, ID: cfg.Name, Name: cfg.Name, Key: key, Now: cfg.Now}
	var c Credentials
	var patience time.Duration
	err = rpc.Retry(ctx, func() error {
		// A hub that is gone must not hold up those that are there; one that waits
		// for an election gets its time in a later round.
		patience = min(patience+firstEnrol, maxEnrol)
		var errs []error
		for _, addr := range cfg.Hubs {
			id, answer, err := enrolAt(ctx, patience, dialer, applicant, addr)
			if err != nil {
				err = fmt.Errorf("join the cluster at %s: %w", addr, err)
				if rpc.IsPermanent(err) {
					return err
				}
				errs = append(errs, err)
				continue
			}
			hubs := answer.Hubs
			if len(hubs) == 0 {
				hubs = []string{addr}
			}
			c = Credentials{Identity: id, GossipKey: answer.GossipKey, Pending: &Pending{Hubs: hubs}}
			if len(answer.StateKey) > 0 {
				key, err := ParseStateKey(answer.StateKey)
				if err != nil {
					return backoff.Permanent(err)
				}
				if err := cfg.Keys.Add(ctx, key); err != nil {
					return backoff.Permanent(err)
				}
			}
			return nil
		}
		err := errors.Join(errs...)
		cfg.Log.Warn("cluster not joined yet, trying again", "error", err)
		return err
	})
	if err != nil {
		return Credentials{}, err
	}
	return c, c.saveCredentials(dir)
}

func enrolAt(ctx context.Context, patience time.Duration, dialer enroll.Dialer, a enroll.Applicant, addr string) (*identity.Identity, syncproto.Enrolled, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	udp, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, syncproto.Enrolled{}, fleet.Errorf(fleet.CodeUnavailable, "resolve %s: %w", addr, err)
	}
	return enroll.Enroll(ctx, dialer, udp, a)
}
