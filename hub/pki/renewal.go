package pki

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/datadir"
	"skerry/syncproto/identity"
)

// renewCheck is how often a hub checks its certificate. One long timer would not work, because timers stop while a
// machine is suspended, and clocks are set.
const renewCheck = time.Minute

// OwnConfig of an OwnCertificate. All but HTTPNames is required.
type OwnConfig struct {
	Dir      string // of the identity
	Identity *identity.Identity
	Now      func() time.Time
	Log      *slog.Logger
	// HTTPNames are the names in the certificate of the HTTP API; nil: the CA signs none for it.
	HTTPNames func() []string
}

// OwnCertificate has this hub's identity with its newest certificate, and the certificate of its HTTP API.
type OwnCertificate struct {
	cfg       OwnConfig
	own       atomic.Pointer[identity.Identity]
	http      atomic.Pointer[tls.Certificate]
	firstHTTP chan struct{} // closed once http is set

	accepted atomic.Pointer[state.AcceptedCAs]

	// Of NewOwnCertificate, and then of the goroutine that runs Renewal.Run.
	version   string     // of the CAs that were taken over from the state last
	authority *Authority // nil: not known yet
	web       *Authority // signs http; nil: not known yet
	webChain  [][]byte
	httpNames []string // of http, sorted
}

// NewOwnCertificate returns the certificate of an identity, which lies in cfg.Dir. If that has the CA's key
// too, it renews a certificate that is due: hubs that were all off until their certificates ended
// cannot reach each other otherwise. Failures are logged only.
func NewOwnCertificate(cfg OwnConfig) *OwnCertificate {
	c := &OwnCertificate{cfg: cfg, firstHTTP: make(chan struct{})}
	c.own.Store(cfg.Identity)
	ca, err := LoadAuthority(cfg.Dir, cfg.Identity.Authorities()...)
	if err != nil {
		cfg.Log.Warn("copy of the CA's key not usable, it will be written again", "error", err)
		return c
	}
	c.authority = ca
	if id := cfg.Identity; ca != nil && len(id.Also)+len(id.Former) == 0 { // otherwise the state says which CA signs it
		c.web, c.webChain = ca, [][]byte{ca.cert.Raw}
	}
	if err := c.renewIfDue(); err != nil {
		cfg.Log.Error("hub's certificate not renewed", "error", err)
	}
	return c
}

// Identity returns the identity with the newest certificate. Any goroutine may call it.
func (c *OwnCertificate) Identity() *identity.Identity { return c.own.Load() }

// Accepted returns the CAs of which edges are to accept hubs; nil: the CA was never replaced. Any goroutine may call it.
func (c *OwnCertificate) Accepted() *state.AcceptedCAs { return c.accepted.Load() }

// renewIfDue renews the certificates that are due, if the CA's key is known.
func (c *OwnCertificate) renewIfDue() error {
	if c.authority == nil {
		return nil
	}
	now := c.cfg.Now()
	return errors.Join(c.renewIdentity(now), c.renewHTTP(now))
}

// renewIdentity renews the certificate of the identity, on disk and in memory, if it is due or another CA signs now.
func (c *OwnCertificate) renewIdentity(now time.Time) error {
	if !c.Identity().Due(now) && c.Identity().CA.Equal(c.authority.cert) {
		return nil
	}
	renewed, err := c.authority.Renew(c.Identity(), now)
	if err != nil {
		return fmt.Errorf("renew the hub's certificate: %w", err)
	}
	if err := SaveCert(c.cfg.Dir, renewed); err != nil {
		return datadir.DiskError("keep the hub's renewed certificate", err)
	}
	c.cfg.Log.Info("hub's certificate renewed", "ended", c.Identity().Cert.NotAfter, "until", renewed.Cert.NotAfter)
	c.own.Store(renewed)
	return nil
}

// takeOver makes the hub accept the peers that a plan says, first on disk, then in memory.
func (c *OwnCertificate) takeOver(plan *authorities, signing, web *Authority) error {
	next := c.Identity().WithAuthorities(plan.hubs)
	next.Former, next.Bridges = plan.former, plan.bridges[plan.signing.Number]
	if !sameAuthorities(next, c.Identity()) {
		if err := SaveAuthorities(c.cfg.Dir, next); err != nil {
			return datadir.DiskError("keep the cluster's CAs", err)
		}
	}
	if c.authority == nil || !c.authority.cert.Equal(signing.cert) {
		if err := SaveAuthority(c.cfg.Dir, signing); err != nil {
			return datadir.DiskError("keep the CA's key", err)
		}
	}
	if c.version != "" {
		c.cfg.Log.Info("the cluster's CAs have changed", "cas", plan.version)
	}
	c.authority, c.web, c.webChain, c.version = signing, web, plan.webChain, plan.version
	c.own.Store(next)
	c.accepted.Store(plan.acceptedCAs())
	return nil
}

// sameAuthorities reports whether two identities accept the same CAs and show the same bridges.
func sameAuthorities(a, b *identity.Identity) bool {
	return identity.CAIDs(a.Authorities()) == identity.CAIDs(b.Authorities()) &&
		identity.CAIDs(a.Former) == identity.CAIDs(b.Former) && identity.CAIDs(a.Bridges) == identity.CAIDs(b.Bridges)
}

// Renewal keeps this hub's certificate valid, and its copies of the CA's key and the state key complete.
type Renewal struct {
	Own      *OwnCertificate
	Registry StateRegistry
	Ready    <-chan struct{} // closed when the hub is in the cluster, has its state and can commit
}

// Run checks every renewCheck, and when the cluster's CAs change, until ctx ends. It logs each new failure once, and
// tries again.
func (r Renewal) Run(ctx context.Context) error {
	ready := r.Ready
	for said := ""; ; {
		watch := r.Registry.State.Watch()
		watch.CAs()
		watch.StateKeys()
		watch.Hubs()
		if ready != nil {
			watch.WakeFor(ready)
		}
		switch err := r.updateCertificate(ctx); {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			r.Own.cfg.Log.Error("hub's certificate not in order, trying again", "error", err)
		}
		wait, cancel := context.WithTimeout(ctx, renewCheck)
		_ = watch.Changed(wait) // also the end of the time is a reason to look again
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-ready:
			ready = nil
		default:
		}
	}
}

// updateCertificate does all steps that are due: fetch the state key, take over the cluster's CAs, renew the
// certificate, commit its record, and say how far the hub is in rotations. Each one can be repeated.
func (r Renewal) updateCertificate(ctx context.Context) error {
	caughtUp := r.isReady()
	view := r.Registry.State.View()
	noKey := r.Registry.Keyring.FetchMissing(ctx, caughtUp)
	cas := view.CAs()
	if len(cas) > 0 {
		noKey = cmp.Or(noKey, r.takeOverCAs(cas))
	}
	if err := r.Own.renewIfDue(); err != nil {
		return err
	}
	if !caughtUp {
		return noKey // nothing can be recorded yet
	}
	record := Record(r.Own.Identity().Cert)
	record.CA = cas.NumberFor(r.Own.Identity().CA.Raw)
	if _, ok := view.Certificate(record.Serial); !ok {
		if err := r.Registry.Record(ctx, record); err != nil {
			return fmt.Errorf("record the hub's certificate: %w", err)
		}
	}
	return errors.Join(noKey, r.reportRotation(ctx, view, cas), r.Registry.Keyring.ReportKeys(ctx))
}

func (r Renewal) isReady() bool {
	select {
	case <-r.Ready:
		return true
	default:
		return false
	}
}

// takeOverCAs makes the hub use the CAs of the state, if it does not yet.
func (r Renewal) takeOverCAs(cas state.CAs) error {
	plan, err := planAuthorities(cas, r.Own.cfg.Now())
	if err != nil || plan.version == r.Own.version {
		return err
	}
	signing := r.Own.authority
	if signing == nil || !bytes.Equal(signing.cert.Raw, plan.signing.Cert) {
		if signing, err = r.Registry.openAuthority(plan.signing); err != nil {
			return err
		}
	}
	web := signing
	if plan.web != plan.signing {
		if web, err = r.Registry.openAuthority(plan.web); err != nil {
			return err
		}
	}
	return r.Own.takeOver(plan, signing, web)
}

// reportRotation commits how far this hub is with the newest CA. It repeats a step that should have completed the
// rotation: a hub that was missing may have been removed.
func (r Renewal) reportRotation(ctx context.Context, view *state.View, cas state.CAs) error {
	if len(cas) == 0 || cas.Newest().SettledAt != 0 {
		return nil
	}
	newest, id := cas.Newest(), r.Own.Identity()
	hub := fleet.HubID(id.Name)
	step := state.CAHubStep{Number: newest.Number, Hub: hub, Renewed: string(id.CA.Raw) == string(newest.Cert), Now: r.Own.cfg.Now().UnixNano()}
	done := newest.Stored
	if step.Renewed {
		done = newest.Renewed
	}
	if slices.Contains(done, hub) && !hasAll(done, view.Hubs()) {
		return nil
	}
	if err := r.Registry.commitCommand(ctx, step); err != nil {
		return fmt.Errorf("record the hub's part in the rotation to CA %d: %w", newest.Number, err)
	}
	return nil
}

// hasAll reports whether a list has all hubs.
func hasAll(ids []fleet.HubID, hubs []state.HubAddr) bool {
	return !slices.ContainsFunc(hubs, func(h state.HubAddr) bool { return !slices.Contains(ids, h.ID) })
}
