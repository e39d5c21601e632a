package edge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"skerry/fleet"
	"skerry/internal/pace"
	"skerry/syncproto/enroll"
	"skerry/syncproto/identity"
)

// Bounds of the pauses between attempts to renew the certificate. Each attempt asks every hub.
const (
	renewPauseMin = time.Minute
	renewPauseMax = time.Hour
)

// renewSpread returns the time over which a fleet spreads its renewals, so that edges do not all ask at once.
// validity is that of the certificate.
func renewSpread(validity time.Duration) time.Duration { return min(validity/50, time.Hour) }

// keepCertificate renews the certificate when wakeRenewal is called and renewalDue says so, until ctx ends. A
// failed renewal is logged, and is tried again at a later call. Without a reachable hub it sets no timer.
func (e *Edge) keepCertificate(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(renewPauseMin), backoff.WithMaxInterval(renewPauseMax), backoff.WithMaxElapsedTime(0),
	)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.renewals:
		}
		wait, ok := e.renewalDue()
		if !ok {
			continue
		}
		if !pace.Rest(ctx, wait) {
			return nil
		}
		err := e.renewCertificate(ctx)
		e.mu.Lock()
		e.renewErr = err
		e.mu.Unlock()
		if err == nil {
			pause.Reset()
			continue
		}
		if ctx.Err() == nil {
			e.log.Warn("certificate not renewed: trying again", "error", err)
		}
		if !pace.Rest(ctx, pause.NextBackOff()) {
			return nil
		}
	}
}

// wakeRenewal makes keepCertificate check whether the certificate must be renewed. It does not wait.
func (e *Edge) wakeRenewal() {
	select {
	case e.renewals <- struct{}{}:
	default: // it is awake already
	}
}

// noteHeartbeatAck wakes the renewal if the certificate is due. The link calls it after each answered
// heartbeat: the time is known then, and a hub is reachable.
func (e *Edge) noteHeartbeatAck() {
	e.neighbours.NoteAnswer()
	e.keyStore.NoteAnswer()
	now := e.trustedNow()
	e.mu.Lock()
	e.certRefused, e.caEnded = false, false
	due := e.isDueLocked(now)
	e.mu.Unlock()
	if due {
		e.wakeRenewal()
	}
}

// isDueLocked reports whether the certificate is to be renewed at a time: it ends soon, or another CA signs now. The
// caller holds e.mu.
func (e *Edge) isDueLocked(now time.Time) bool {
	return e.identity.Due(now) || len(e.accepted) > 0 && !e.accepted[0].Equal(e.identity.CA)
}

// noteIndex tells what keeps deliveries of hubs at which index the cluster is.
func (e *Edge) noteIndex(ctx context.Context, index fleet.Index) error {
	return errors.Join(e.variables.NoteIndex(ctx, index), e.siteCodes.NoteIndex(ctx, index))
}

// acceptCAs stores the CAs (DER) of which the edge is to accept hubs, and wakes the renewal if another one signs now.
// The CA of the edge's own certificate stays until that is renewed.
func (e *Edge) acceptCAs(ders [][]byte) error {
	cas, err := identity.ParseCAs(ders)
	if err != nil {
		return err
	}
	e.saving.Lock()
	defer e.saving.Unlock()
	e.mu.Lock()
	e.accepted = cas
	next, held := e.identity.WithAuthorities(cas), e.heldCAs
	e.mu.Unlock()
	if names := identity.CAIDs(next.Authorities()); names != held {
		if err := e.dir.Write(caFile, identity.EncodeCerts(next.Authorities()), 0o600); err != nil {
			return err
		}
		e.setIdentity(next)
		e.log.Info("the cluster's CAs have changed", "cas", names)
	}
	return nil
}

// noteSessionEnd has the machine's key erased if the cluster has expelled this edge, and wakes the renewal if a hub refused
// the certificate as ended, or its CA. The link calls it after each session. This machine may not know that the certificate
// has ended, because its time does not count while it is off.
func (e *Edge) noteSessionEnd(err *fleet.Error) {
	e.neighbours.NoteSessionEnd()
	if err.Code == fleet.CodeRevoked {
		e.keyStore.NoteRevoked()
	}
	if err.Code != fleet.CodeCertExpiry && err.Code != fleet.CodeCAEnded {
		return
	}
	e.mu.Lock()
	e.certRefused, e.caEnded = err.Code == fleet.CodeCertExpiry, err.Code == fleet.CodeCAEnded
	e.mu.Unlock()
	e.wakeRenewal()
}

// renewalDue reports whether the certificate must be renewed, and how long to wait before. A certificate that hubs
// refuse because of its age can only be renewed with a join token. One whose CA has ended is renewed at once.
func (e *Edge) renewalDue() (wait time.Duration, ok bool) {
	now := e.trustedNow()
	e.mu.Lock()
	id, tooLate, caEnded, due := e.identity, e.certRefused, e.caEnded, e.isDueLocked(now)
	e.mu.Unlock()
	switch {
	case caEnded:
		return 0, true
	case tooLate:
		return 0, e.cfg.TokenFile != "" // without a token the hubs would refuse again
	case !due:
		return 0, false
	}
	return rand.N(renewSpread(id.Cert.NotAfter.Sub(id.Cert.NotBefore)) + 1), true
}

// renewCertificate gets another certificate for the same key, asking the session's hub first. It writes the
// certificate before the link uses it.
func (e *Edge) renewCertificate(ctx context.Context) error {
	e.mu.Lock()
	id, l, tooLate := e.identity, e.link, e.certRefused
	e.mu.Unlock()
	a := enroll.Applicant{
		Held: id, Role: fleet.RoleEdge, ID: id.Name, Name: e.cfg.Name, Key: id.Key, Now: e.trustedNow,
	}
	if tooLate {
		var err error
		if a.Token, err = e.readToken(); err != nil {
			return err
		}
	}
	link := l.Status()
	hubs := slices.Concat([]string{link.Hub}, slices.DeleteFunc(link.Hubs, func(h string) bool { return h == link.Hub }))
	renewed, _, err := e.enrolOnce(ctx, hubs, a)
	if err != nil {
		return fmt.Errorf("renew the certificate: %w", err)
	}
	if err := e.saveRenewed(renewed); err != nil {
		return err
	}
	e.identities.RotateKey()
	e.log.Info("certificate renewed", "ended", id.Cert.NotAfter, "until", renewed.Cert.NotAfter)
	return nil
}

// saveRenewed writes a renewed certificate, and makes the edge use it. Its CA is written before, beside the others: a
// crash between leaves a certificate whose CA is there.
func (e *Edge) saveRenewed(renewed *identity.Identity) error {
	e.saving.Lock()
	defer e.saving.Unlock()
	e.mu.Lock()
	now, accepted := e.identity, e.accepted
	e.mu.Unlock()
	renewed = renewed.WithAuthorities(now.Authorities())
	if !renewed.CA.Equal(now.CA) {
		if err := e.dir.Write(caFile, identity.EncodeCerts(renewed.Authorities()), 0o600); err != nil {
			return err
		}
	}
	if err := e.dir.Write(certFile, identity.EncodeCert(renewed.Cert.Raw), 0o600); err != nil {
		return err
	}
	if next := renewed.WithAuthorities(accepted); len(accepted) > 0 && len(next.Also) < len(renewed.Also) {
		if err := e.dir.Write(caFile, identity.EncodeCerts(next.Authorities()), 0o600); err != nil {
			return err
		}
		renewed = next
	}
	e.setIdentity(renewed)
	e.mu.Lock()
	e.certRefused, e.caEnded = false, false
	e.mu.Unlock()
	return nil
}

// readToken reads and parses the configured join token.
func (e *Edge) readToken() (identity.Token, error) {
	text, err := os.ReadFile(e.cfg.TokenFile)
	if err != nil {
		return identity.Token{}, fleet.Errorf(fleet.CodeTokenBad, "read the join token: %w", err)
	}
	return identity.ParseToken(string(text))
}
