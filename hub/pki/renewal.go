package pki

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

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

	// Of NewOwnCertificate, and then of the goroutine that runs Renewal.Run.
	authority *Authority // nil: not known yet
	httpNames []string   // of http, sorted
}

// NewOwnCertificate returns the certificate of an identity, which lies in cfg.Dir. If that has the CA's key
// too, it renews a certificate that is due: hubs that were all off until their certificates ended
// cannot reach each other otherwise. Failures are logged only.
func NewOwnCertificate(cfg OwnConfig) *OwnCertificate {
	c := &OwnCertificate{cfg: cfg, firstHTTP: make(chan struct{})}
	c.own.Store(cfg.Identity)
	ca, err := LoadAuthority(cfg.Dir, cfg.Identity.CA)
	if err != nil {
		cfg.Log.Warn("copy of the CA's key not usable, it will be written again", "error", err)
		return c
	}
	c.authority = ca
	if err := c.renewIfDue(); err != nil {
		cfg.Log.Error("hub's certificate not renewed", "error", err)
	}
	return c
}

// Identity returns the identity with the newest certificate. Any goroutine may call it.
func (c *OwnCertificate) Identity() *identity.Identity { return c.own.Load() }

// renewIfDue renews the certificates that are due, if the CA's key is known.
func (c *OwnCertificate) renewIfDue() error {
	if c.authority == nil {
		return nil
	}
	now := c.cfg.Now()
	return errors.Join(c.renewIdentity(now), c.renewHTTP(now))
}

// renewIdentity renews the certificate of the identity, on disk and in memory, if it is due.
func (c *OwnCertificate) renewIdentity(now time.Time) error {
	if !c.Identity().Due(now) {
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

// Renewal keeps this hub's certificate valid, and its copies of the CA's key and the state key complete.
type Renewal struct {
	Own      *OwnCertificate
	Registry StateRegistry
	Ready    <-chan struct{} // closed when the hub is in the cluster and can commit
}

// Run checks every renewCheck until ctx ends. It logs each new failure once, and tries again.
func (r Renewal) Run(ctx context.Context) error {
	ready := r.Ready
	tick := time.NewTicker(renewCheck)
	defer tick.Stop()
	for said := ""; ; {
		switch err := r.updateCertificate(ctx); {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			r.Own.cfg.Log.Error("hub's certificate not in order, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
			ready = nil
		case <-tick.C:
		}
	}
}

// updateCertificate does all steps that are due: fetch the state key, copy the CA's key to disk, renew
// the certificate, and commit its record. Each one can be repeated.
func (r Renewal) updateCertificate(ctx context.Context) error {
	view := r.Registry.State.View()
	noKey := r.Registry.Keyring.FetchMissing(ctx)
	if cluster, ok := view.Cluster(); ok && r.Own.authority == nil {
		opened, err := r.Registry.Keyring.Open(*cluster)
		if err != nil {
			return cmp.Or(noKey, err)
		}
		ca, err := NewAuthority(opened)
		if err != nil {
			return err
		}
		if err := SaveAuthority(r.Own.cfg.Dir, ca); err != nil {
			return datadir.DiskError("keep the CA's key", err)
		}
		r.Own.authority = ca
	}
	if err := r.Own.renewIfDue(); err != nil {
		return err
	}
	select {
	case <-r.Ready:
	default:
		return noKey // nothing can be recorded yet
	}
	record := Record(r.Own.Identity().Cert)
	if _, ok := view.Certificate(record.Serial); ok {
		return noKey
	}
	if err := r.Registry.Record(ctx, record); err != nil {
		return fmt.Errorf("record the hub's certificate: %w", err)
	}
	return noKey
}
