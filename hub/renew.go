package hub

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"skerry/hub/pki"
	"skerry/internal/datadir"
	"skerry/syncproto/identity"
)

// renewCheck is how often a hub looks at its certificate. It does not wait for the
// day: timers stand still while a machine is suspended, and clocks are set.
const renewCheck = time.Minute

// ownIdentity is who this hub is to others, with its newest certificate.
func (h *Hub) ownIdentity() *identity.Identity { return h.own.Load() }

// renewAtStart renews a certificate that is due before anybody is talked to, where
// an earlier life of the hub left the CA's key: hubs that were all off until their
// certificates ended have no other way to each other, and so to their state.
func (h *Hub) renewAtStart() {
	ca, err := pki.LoadAuthority(h.dir.File(identityDir), h.ownIdentity().CA)
	if err != nil {
		h.log.Warn("copy of the CA's key not usable, it will be written again", "error", err)
		return
	}
	h.authority = ca
	if err := h.renewIfDue(); err != nil {
		h.log.Error("hub's certificate not renewed", "error", err)
	}
}

// runCertificateRenewal renews the hub's certificate for as long as the hub runs.
func (h *Hub) runCertificateRenewal(ctx context.Context) error {
	ready := h.Ready()
	tick := time.NewTicker(renewCheck)
	defer tick.Stop()
	for said := ""; ; {
		switch err := h.updateCertificate(ctx); {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			h.log.Error("hub's certificate not in order, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ready: // the state is there
			ready = nil
		case <-tick.C:
		}
	}
}

// updateCertificate does what is to be done: each step again until it has worked.
func (h *Hub) updateCertificate(ctx context.Context) error {
	view := h.store.View()
	noKey := h.fetchMissingStateKey(ctx)
	if cluster, ok := view.Cluster(); ok && h.authority == nil {
		opened, err := pki.OpenCluster(*cluster, h.stateKeys.allStateKeys())
		if err != nil {
			return cmp.Or(noKey, err)
		}
		ca, err := pki.NewAuthority(opened)
		if err != nil {
			return err
		}
		if err := pki.SaveAuthority(h.dir.File(identityDir), ca); err != nil {
			return datadir.DiskError("keep the CA's key", err)
		}
		h.authority = ca
	}
	if err := h.renewIfDue(); err != nil {
		return err
	}
	select {
	case <-h.ready:
	default:
		return noKey // nothing can be recorded yet
	}
	record := pki.Record(h.ownIdentity().Cert)
	if _, ok := view.Certificate(record.Serial); ok {
		return noKey
	}
	if err := h.applyAndCheck(ctx, record); err != nil {
		return fmt.Errorf("record the hub's certificate: %w", err)
	}
	return noKey
}

func (h *Hub) renewIfDue() error {
	now := h.cfg.Now()
	if h.authority == nil || !h.ownIdentity().Due(now) {
		return nil
	}
	renewed, err := h.authority.Renew(h.ownIdentity(), now)
	if err != nil {
		return fmt.Errorf("renew the hub's certificate: %w", err)
	}
	if err := pki.SaveCert(h.dir.File(identityDir), renewed); err != nil {
		return datadir.DiskError("keep the hub's renewed certificate", err)
	}
	h.log.Info("hub's certificate renewed", "ended", h.ownIdentity().Cert.NotAfter, "until", renewed.Cert.NotAfter)
	h.own.Store(renewed)
	return nil
}
