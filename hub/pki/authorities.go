package pki

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"skerry/hub/state"
	"skerry/syncproto/identity"
)

// authorities says what a hub does with the CAs of the cluster at a time. It is immutable.
type authorities struct {
	version string // differs if anything below does
	signing *state.CA
	hubs    []*x509.Certificate // CAs whose hubs are accepted, the one that signs first
	former  []*x509.Certificate // all others: their edges may still be accepted
	// bridges has, by the number of the CA that signed a hub's certificate, what is shown behind that.
	bridges map[uint64][]*x509.Certificate
	// web signs the certificate of the HTTP API: the oldest CA in its grace, because clients know that one for longest.
	// webChain leads from there to the CA that signs everything else, and ends in the CAs themselves.
	web      *state.CA
	webChain [][]byte
}

// planAuthorities returns what a hub does at a time with the CAs.
func planAuthorities(cas state.CAs, now time.Time) (*authorities, error) {
	accepted := cas.ForHubs(now.UnixNano())
	plan := &authorities{signing: cas[cas.Signing()], bridges: map[uint64][]*x509.Certificate{}}
	var bridges []*x509.Certificate
	for _, ca := range cas {
		cert, err := x509.ParseCertificate(ca.Cert)
		if err != nil {
			return nil, fmt.Errorf("parse CA %d: %w", ca.Number, err)
		}
		if !slices.Contains(accepted, ca) {
			plan.former = append(plan.former, cert)
		}
		if len(ca.Forward) > 0 {
			bridge, err := x509.ParseCertificate(ca.Forward)
			if err != nil {
				return nil, fmt.Errorf("parse the bridge to CA %d: %w", ca.Number, err)
			}
			bridges = append([]*x509.Certificate{bridge}, bridges...)
		}
		plan.bridges[ca.Number] = slices.Clone(bridges)
	}
	for _, ca := range accepted {
		cert, err := x509.ParseCertificate(ca.Cert)
		if err != nil {
			return nil, fmt.Errorf("parse CA %d: %w", ca.Number, err)
		}
		plan.hubs = append(plan.hubs, cert)
	}
	if err := plan.chooseWeb(cas, now); err != nil {
		return nil, err
	}
	plan.version = fmt.Sprintf("signs %d, hubs %s, web %d of %d", plan.signing.Number, identity.CAIDs(plan.hubs), plan.web.Number, cas.Newest().Number)
	return plan, nil
}

// chooseWeb sets web and webChain.
func (p *authorities) chooseWeb(cas state.CAs, now time.Time) error {
	signing := cas.Signing()
	for i := 0; i <= signing; i++ {
		cert, err := x509.ParseCertificate(cas[i].Cert)
		if err != nil {
			return fmt.Errorf("parse CA %d: %w", cas[i].Number, err)
		}
		if i < signing && (now.UnixNano() > cas.GraceEnd(i) || now.Add(HTTPValidity).After(cert.NotAfter)) {
			continue
		}
		p.web = cas[i]
		for _, newer := range cas[i+1 : signing+1] {
			p.webChain = append(p.webChain, newer.Reverse)
		}
		for _, ca := range cas[i : signing+1] {
			p.webChain = append(p.webChain, ca.Cert)
		}
		return nil
	}
	return nil // the loop ends with the CA that signs
}

// acceptedCAs returns what edges are told; nil: the CA was never replaced, so that every edge has it.
func (p *authorities) acceptedCAs() *state.AcceptedCAs {
	if p.signing.Number == 1 && len(p.hubs) == 1 {
		return nil
	}
	a := &state.AcceptedCAs{Held: identity.CAIDs(p.hubs), Signer: p.hubs[0].SubjectKeyId}
	for _, ca := range p.hubs {
		a.Certs = append(a.Certs, ca.Raw)
	}
	return a
}
