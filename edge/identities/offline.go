package identities

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/internal/sorting"
	"skerry/syncproto"
	"skerry/syncproto/nodekey"
)

const (
	// renewPoll bounds the pause between two looks for tokens to renew: the time of the hubs may step.
	renewPoll = 30 * time.Second
	// linkPoll is the pause between two looks whether a hub is still in reach, while a token waits for its renewal by it.
	linkPoll = time.Second
	// futureSkew is how much later than now a token of the edge may have been issued: a clock that has gone back since made
	// it one that nobody accepts yet.
	futureSkew = time.Minute
)

// RenewOffline signs the tokens that end soon, if their jobs allow it and no hub is in reach: there is no session, or its hub
// has not answered for an eighth of the token's time, as if the link were cut and nobody knew yet. It returns the time until it
// has to be called again. edge.Run calls it before the tasks start: one that starts after a boot finds a token that counts.
func (k *Keeper) RenewOffline(ctx context.Context) (wait time.Duration, err error) {
	k.changing <- struct{}{}
	defer func() { <-k.changing }()
	key, all := k.offlineTokens()
	wait = renewPoll
	var failed []error
	for i := range all {
		d := all[i].newestToken()
		left := timeToRenewal(d, all[i].Renewed != nil, k.cfg.HubTime())
		if left <= 0 && k.cfg.Connected(lifetime(d)/8) {
			left = linkPoll // the hub renews it
		}
		if left <= 0 {
			if left, err = k.renewToken(ctx, key, all[i]); err != nil {
				failed = append(failed, err)
			}
		}
		wait = min(wait, left)
	}
	return wait, errors.Join(failed...)
}

// offlineTokens returns the key that the hubs publish, and the tokens that it may renew; none before there is such a key.
func (k *Keeper) offlineTokens() (key *nodekey.Key, all []record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys.current == nil {
		return nil, nil
	}
	for _, r := range k.tokens {
		if r.Identity.Offline {
			all = append(all, r)
		}
	}
	sorting.Slice(all, func(a, b record) int {
		return cmp.Compare(journalKey(a.Identity.IdentityName()), journalKey(b.Identity.IdentityName()))
	})
	return k.keys.current, all
}

// renewToken signs and journals another token for a record, and returns the time until that has to be renewed. k.changing is
// held.
func (k *Keeper) renewToken(ctx context.Context, key *nodekey.Key, r record) (next time.Duration, err error) {
	needed, err := k.cfg.Needs(ctx, r.Identity.Alloc)
	if err != nil || !needed { // it has ended, or has not arrived
		return renewPoll, err
	}
	d, err := signRenewal(key, k.cfg.Node, r.Identity, k.cfg.HubTime())
	if err != nil {
		return renewPoll, fmt.Errorf("renew identity %s of task %s: %w", r.Identity.Name, r.Identity.Task, err)
	}
	r.Renewed = &d
	if err := k.putRecord(ctx, r); err != nil {
		return renewPoll, err
	}
	return max(linkPoll, timeToRenewal(&d, true, k.cfg.HubTime())), nil
}

// timeToRenewal returns how long the edge waits until it renews a token: until a quarter of its time is left, since a hub
// does so when half of it is over. own says that the edge has signed it.
func timeToRenewal(d *syncproto.DeliveredIdentity, own bool, now time.Time) time.Duration {
	issued := time.Unix(d.Issued, 0)
	if own && issued.After(now.Add(futureSkew)) {
		return 0
	}
	return issued.Add(lifetime(d) / 4 * 3).Sub(now)
}

// lifetime is how long a token lasts from when it is issued.
func lifetime(d *syncproto.DeliveredIdentity) time.Duration {
	return time.Duration(d.Expires-d.Issued) * time.Second
}

// signRenewal returns a token with the claims of the hub's token d, which lasts as long.
func signRenewal(key *nodekey.Key, node fleet.NodeID, d syncproto.DeliveredIdentity, now time.Time) (syncproto.DeliveredIdentity, error) {
	if d.Expires <= d.Issued {
		return d, fmt.Errorf("the hub's token has no end")
	}
	d.Issued, d.Expires = now.Unix(), now.Unix()+d.Expires-d.Issued
	claims, err := renewClaims(d.Token, node, d.Issued, d.Expires, fleet.NewUUID(nil))
	if err != nil {
		return d, err
	}
	d.KeyID = nodekey.ID(node, key.Public())
	if d.Token, err = key.Sign(node, claims); err != nil {
		return d, err
	}
	return d, d.Check()
}

// Claims of tokens that an edge has signed, besides those of the hub's token; package workload of the hubs reads them.
const (
	claimNode    = "skerry_node_id"
	claimOffline = "skerry_offline"
)

// renewClaims returns the claims of a hub's token with other times (seconds since 1970). They name the edge as their issuer,
// and say that no hub has seen them.
func renewClaims(token string, node fleet.NodeID, issued, expires int64, id string) ([]byte, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > syncproto.MaxIdentityToken {
		return nil, fmt.Errorf("the hub's token cannot be read: it has %d parts, %d bytes", len(parts), len(token))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, fmt.Errorf("the hub's token cannot be read: %w", err)
	}
	claims := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber() // other numbers stay as they are
	if err := decoder.Decode(&claims); err != nil {
		return nil, fmt.Errorf("the hub's token cannot be read: %w", err)
	}
	if claims == nil {
		return nil, fmt.Errorf("the hub's token cannot be read: it has no claims")
	}
	issuer, _ := claims["iss"].(string)
	claims["iss"], claims["jti"] = nodekey.Issuer(issuer, node), id
	claims["iat"], claims["nbf"], claims["exp"] = issued, issued, expires
	claims[claimNode], claims[claimOffline] = node, true
	return json.Marshal(claims)
}
