package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/internal/datadir"
	"skerry/syncproto"
	"skerry/syncproto/enroll"
	"skerry/syncproto/identity"
)

// Files of the identity, beside those of package pki.
const (
	gossipKeyFile = "gossip-key"
	// pendingFile holds what is still to be done of a bootstrap or a join; it is
	// removed when the cluster has it.
	pendingFile = "pending.json"
)

// How long one hub is asked for a certificate, in the first round and at most.
const (
	firstEnrol = 3 * time.Second
	maxEnrol   = 20 * time.Second
)

// pending is a beginning that a crash may have interrupted. Each step of it may
// be done again.
type pending struct {
	// Bootstrap: to be committed.
	Cluster     *state.Cluster     `json:",omitempty"`
	Token       *state.JoinToken   `json:",omitempty"` // of older releases: the only one, for both roles
	Tokens      []state.JoinToken  `json:",omitempty"`
	Certificate *state.Certificate `json:",omitempty"`

	Hubs []string `json:",omitempty"` // join: whom to ask
}

// credentials are what a hub is to others.
type credentials struct {
	identity  *identity.Identity
	gossipKey []byte
	stateKeys []pki.StateKey
	pending   *pending // nil: the cluster knows this hub
}

// loadCredentials reads what an earlier start left in a folder; ok is false where there is no
// identity yet. A bootstrap that was interrupted before the identity was written
// begins anew: nobody can know its CA.
func loadCredentials(base string) (c credentials, ok bool, err error) {
	c.identity, ok, err = pki.Load(base)
	if err == nil && !ok {
		return credentials{}, false, nil
	}
	if err == nil {
		c.gossipKey, err = os.ReadFile(filepath.Join(base, gossipKeyFile))
	}
	if err == nil && len(c.gossipKey) != pki.GossipKeyBytes {
		err = fmt.Errorf("read %s: %d bytes, not %d", filepath.Join(base, gossipKeyFile), len(c.gossipKey), pki.GossipKeyBytes)
	}
	if err != nil {
		return credentials{}, false, damaged(err)
	}
	if c.stateKeys, err = pki.LoadStateKeys(base); err != nil {
		return credentials{}, false, err
	}
	b, err := os.ReadFile(filepath.Join(base, pendingFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, true, nil
	case err != nil:
		return credentials{}, false, damaged(err)
	}
	c.pending = new(pending)
	if err := json.Unmarshal(b, c.pending); err != nil {
		return credentials{}, false, damaged(fmt.Errorf("read %s: %w", filepath.Join(base, pendingFile), err))
	}
	return c, true, nil
}

// damaged is for an identity that cannot be read. It is not made anew by itself:
// the cluster knows this hub by it.
func damaged(err error) error {
	return fleet.Errorf(fleet.CodeInvalid, "read the hub's identity: %v", err).
		WithHint("restore the folder from a backup, or join the cluster under another name with another data directory")
}

// saveCredentials writes the identity last: it is what makes the rest count.
func (c *credentials) saveCredentials(dir *datadir.Dir) error {
	b, err := json.Marshal(c.pending)
	if err != nil {
		return fmt.Errorf("write the hub's identity: %w", err)
	}
	if err := os.MkdirAll(dir.File(identityDir), 0o700); err != nil {
		return datadir.DiskError("write the hub's identity", err)
	}
	if err := dir.Write(filepath.Join(identityDir, pendingFile), b, 0o600); err != nil {
		return err
	}
	if err := dir.Write(filepath.Join(identityDir, gossipKeyFile), c.gossipKey, 0o600); err != nil {
		return err
	}
	if len(c.stateKeys) > 0 {
		if err := pki.SaveStateKeys(dir.File(identityDir), c.stateKeys); err != nil {
			return datadir.DiskError("write the hub's state key", err)
		}
	}
	if err := pki.Save(dir.File(identityDir), c.identity); err != nil {
		return datadir.DiskError("write the hub's identity", err)
	}
	return nil
}

// removePendingFile forgets what was pending, when the cluster has it.
func removePendingFile(dir *datadir.Dir) error {
	err := os.Remove(dir.File(filepath.Join(identityDir, pendingFile)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("finish joining the cluster: %w", err)
	}
	return nil
}

// bootstrap makes a cluster: its CA, this hub's certificate, and two join tokens, for
// edges and for other hubs, which lie in the data directory for the operator.
func bootstrap(cfg Config, dir *datadir.Dir, now time.Time) (credentials, error) {
	cluster, err := pki.NewCluster(cfg.Region, now)
	if err != nil {
		return credentials{}, err
	}
	authority, err := pki.NewAuthority(cluster)
	if err != nil {
		return credentials{}, err
	}
	id, issued, err := authority.Issue(fleet.RoleHub, cfg.Name, now)
	if err != nil {
		return credentials{}, err
	}
	stateKey := pki.NewStateKey()
	seal, err := stateKey.Seal(cluster)
	if err != nil {
		return credentials{}, err
	}
	c := credentials{identity: id, gossipKey: cluster.GossipKey, stateKeys: []pki.StateKey{stateKey}}
	cluster = cluster.WithSeal(seal)
	c.pending = &pending{Cluster: &cluster, Certificate: &issued}
	for _, made := range []struct{ role, file string }{
		{fleet.RoleEdge, joinTokenFile}, {fleet.RoleHub, hubJoinTokenFile},
	} {
		token, kept := pki.NewToken(cluster, []string{made.role}, 0, now)
		kept.Description = "made with the cluster, in " + made.file
		if err := dir.Write(made.file, []byte(token.String()+"\n"), 0o600); err != nil {
			return credentials{}, err
		}
		c.pending.Tokens = append(c.pending.Tokens, kept)
	}
	return c, c.saveCredentials(dir)
}

// join enrols with the first hub that answers, and asks all of them again until
// one does or ctx ends. A token that is refused is final.
func join(ctx context.Context, cfg Config, dir *datadir.Dir, dialer enroll.Dialer) (credentials, error) {
	token, err := cfg.joinToken()
	if err != nil {
		return credentials{}, err
	}
	key, err := identity.NewKey()
	if err != nil {
		return credentials{}, err
	}
	applicant := enroll.Applicant{Token: token, Role: fleet.RoleHub, ID: cfg.Name, Name: cfg.Name, Key: key, Now: cfg.Now}
	var c credentials
	var patience time.Duration
	err = rpc.Retry(ctx, func() error {
		// A hub that is gone must not hold up those that are there; one that waits
		// for an election gets its time in a later round.
		patience = min(patience+firstEnrol, maxEnrol)
		var errs []error
		for _, addr := range cfg.Join {
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
			c = credentials{identity: id, gossipKey: answer.GossipKey, pending: &pending{Hubs: hubs}}
			if len(answer.StateKey) > 0 {
				key, err := pki.ParseStateKey(answer.StateKey)
				if err != nil {
					return backoff.Permanent(err)
				}
				c.stateKeys = []pki.StateKey{key}
			}
			return nil
		}
		err := errors.Join(errs...)
		cfg.Log.Warn("cluster not joined yet, trying again", "error", err)
		return err
	})
	if err != nil {
		return credentials{}, err
	}
	return c, c.saveCredentials(dir)
}

func enrolAt(ctx context.Context, patience time.Duration, dialer enroll.Dialer, a enroll.Applicant, addr string) (*identity.Identity, syncproto.Enrolled, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	udp, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, syncproto.Enrolled{}, fleet.Errorf(fleet.CodeUnavailable, "resolve %s: %v", addr, err)
	}
	return enroll.Enroll(ctx, dialer, udp, a)
}

// joinToken reads the token that the configuration names.
func (c Config) joinToken() (identity.Token, error) {
	text := c.Token
	if text == "" && c.TokenFile != "" {
		b, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return identity.Token{}, fleet.Errorf(fleet.CodeTokenBad, "read the join token: %v", err)
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		return identity.Token{}, fleet.Errorf(fleet.CodeTokenBad, "join the cluster: no join token is given").
			WithHint("name the file with --token-file; the first hub keeps it in DATA/hub-join-token")
	}
	return identity.ParseToken(text)
}
