package pki_test

import (
	"crypto/sha256"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/syncproto"
	"skerry/syncproto/enroll"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

const grace = 400 * day

// mustReplaceCA makes the registry's CA a new one, which signs since a time.
func (r *registry) mustReplaceCA(tb testing.TB, since time.Time) {
	tb.Helper()
	before := mustCA(tb, *r.cluster)
	if r.keys == nil {
		r.keys = map[uint64][]byte{1: r.cluster.CAKey}
	}
	made, key, err := before.NewSuccessor(r.cluster.ID, r.CAs().Newest().Number+1, since)
	if err != nil {
		tb.Fatal(err)
	}
	made.Grace, made.SignsSince, made.SettledAt = grace, since.UnixNano(), since.UnixNano()
	r.cluster.CACert, r.cluster.CAKey = made.Cert, key
	r.keys[made.Number] = key
	r.later = append(r.later, &made)
}

// mustHubOf returns a hub's identity with a certificate of the registry's newest CA and the bridges to it, as a hub has
// it when the hubs accept no other CA of each other.
func (r *registry) mustHubOf(tb testing.TB, now time.Time) *identity.Identity {
	tb.Helper()
	id, _, err := mustCA(tb, *r.cluster).Issue(fleet.RoleHub, "one", now)
	if err != nil {
		tb.Fatal(err)
	}
	for _, ca := range r.CAs() {
		if len(ca.Forward) > 0 {
			id.Bridges = append(id.Bridges, mustParse(tb, ca.Forward))
		}
		if cert := mustParse(tb, ca.Cert); !cert.Equal(id.CA) {
			id.Former = append(id.Former, cert)
		}
	}
	return id
}

func (r *registry) admit(id *identity.Identity) {
	sum := sha256.Sum256(id.Cert.RawSubjectPublicKeyInfo)
	r.admitted = map[string][]byte{id.Cert.Subject.CommonName: sum[:]}
}

// An edge with a certificate of a replaced CA renews it: within the grace as ever, and afterwards with the key with which
// it was admitted. Somebody who has the key of the old CA, and made a certificate for another key, does not.
func TestRenewalAfterTheCAWasReplaced(t *testing.T) {
	r := mustRegistry(t)
	r.known["edge:"+nodeID] = true
	held := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID)
	forged := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID)
	r.admit(held)
	r.mustReplaceCA(t, start.Add(day))
	r.mustReplaceCA(t, start.Add(2*day))
	token := r.mustToken(0, fleet.RoleEdge)
	for name, try := range map[string]struct {
		held    *identity.Identity
		at      time.Time
		revoked bool
		unknown bool
		token   identity.Token
		want    fleet.Code
	}{
		"within the grace":                    {held: held, at: start.Add(day + grace)},
		"after it":                            {held: held, at: start.Add(day + grace + time.Second)},
		"long after it":                       {held: held, at: start.Add(2 * 365 * day)},
		"after that of its own certificate":   {held: held, at: start.Add(3 * 365 * day), want: fleet.CodeCertExpiry},
		"the same with a token":               {held: held, at: start.Add(3 * 365 * day), token: token},
		"revoked":                             {held: held, at: start.Add(500 * day), revoked: true, want: fleet.CodeRevoked},
		"another key, after the grace":        {held: forged, at: start.Add(500 * day), want: fleet.CodeCertExpiry},
		"an edge whose key nobody knows":      {held: held, at: start.Add(500 * day), unknown: true, want: fleet.CodeCertExpiry},
		"another key, but with a valid token": {held: forged, at: start.Add(500 * day), token: token},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.recorded())
			r.revoked = nil
			r.admit(held)
			if try.revoked {
				r.revoked = map[fleet.NodeID]*fleet.Revocation{nodeID: {NodeID: nodeID}}
			}
			if try.unknown {
				r.admitted = nil
			}
			hub := mustServeAs(t, r.mustHubOf(t, try.at), mustEnrolment(t, r, try.at), try.at)
			renewed, _, err := enroll.Enroll(t.Context(), mustEndpoint(t, transport.Config{}), hub.addr, enroll.Applicant{
				Held: try.held, Token: try.token, Role: fleet.RoleEdge, ID: nodeID, Key: try.held.Key, Now: func() time.Time { return start },
			})
			if fleet.CodeOf(err) != try.want {
				t.Fatalf("got %v, want %q", err, try.want)
			}
			if err != nil {
				if len(r.recorded()) != before {
					t.Fatal("a certificate was recorded nevertheless")
				}
				return
			}
			if string(renewed.CA.Raw) != string(r.cluster.CACert) || r.recorded()[before].CA != 3 {
				t.Fatalf("renewed by %s, recorded %+v", renewed.CA.Subject, r.recorded()[before:])
			}
			if len(renewed.Also) != 1 || !renewed.Also[0].Equal(held.CA) {
				t.Fatalf("the CA before is forgotten before a hub says so: %d", len(renewed.Also))
			}
		})
	}
}

// A request for another key than the certificate's is no proof that the edge has the key with which it was admitted.
func TestAProofIsForTheSameKey(t *testing.T) {
	r := mustRegistry(t)
	held := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID)
	r.admit(held)
	r.mustReplaceCA(t, start)
	req := syncproto.Enroll{Role: fleet.RoleEdge, ID: nodeID, CSR: mustRequest(t, fleet.RoleEdge, nodeID)}
	_, err := mustEnrolment(t, r, start.Add(500*day)).Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}, Cert: held.Cert}, req)
	if fleet.CodeOf(err) != fleet.CodeCertExpiry {
		t.Fatalf("got %v", err)
	}
}

// Join tokens of before and after a rotation admit machines, whose first CA is the one that signs.
func TestJoinTokensOfAReplacedCA(t *testing.T) {
	r := mustRegistry(t)
	old := r.mustToken(0, fleet.RoleEdge)
	r.mustReplaceCA(t, start)
	r.mustReplaceCA(t, start)
	hub := mustServeAs(t, r.mustHubOf(t, start), mustEnrolment(t, r, start), start)
	for name, token := range map[string]identity.Token{"of before": old, "of after": r.mustToken(0, fleet.RoleEdge)} {
		key, err := identity.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		id, _, err := enroll.Enroll(t.Context(), mustEndpoint(t, transport.Config{}), hub.addr, enroll.Applicant{
			Token: token, Role: fleet.RoleEdge, ID: nodeID, Key: key, Now: func() time.Time { return time.Time{} },
		})
		if err != nil || string(id.CA.Raw) != string(r.cluster.CACert) {
			t.Errorf("a token %s: %v", name, err)
		}
	}
}

// The certificate of the HTTP API stays of the old CA during its grace, and clients that know only the new one accept it,
// too: by crypto/x509, as curl and Nomad's tools do.
func TestHTTPCertificateOfTwoCAs(t *testing.T) {
	r := mustRegistry(t)
	old := mustIssue(t, *r.cluster, fleet.RoleHub, "one").CA
	r.mustReplaceCA(t, start.Add(day))
	r.mustReplaceCA(t, start.Add(2*day))
	newest := mustParse(t, r.cluster.CACert)
	for name, try := range map[string]struct {
		at       time.Time
		old, mid bool
	}{
		"in the grace of both": {at: start.Add(3 * day), old: true, mid: true},
		"of the second alone":  {at: start.Add(day + grace + time.Hour), mid: true},
		"after both":           {at: start.Add(2*day + grace + time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			chain, err := pki.SignForHTTP(r.CAs(), r.keys, try.at)
			if err != nil {
				t.Fatal(err)
			}
			for who, known := range map[string]struct {
				ca *x509.Certificate
				ok bool
			}{"the first": {old, try.old}, "the second": {mustParse(t, r.later[0].Cert), try.mid}, "the newest": {newest, true}} {
				roots, between := x509.NewCertPool(), x509.NewCertPool()
				roots.AddCert(known.ca)
				for _, cert := range chain[1:] {
					between.AddCert(cert)
				}
				_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: "hub.example", CurrentTime: try.at})
				if (err == nil) != known.ok {
					t.Errorf("who knows %s: %v, want ok=%t", who, err, known.ok)
				}
			}
		})
	}
}

// A hub's files have all CAs that it needs before it has read the state.
func TestCAsOfAHubAreKept(t *testing.T) {
	r, dir := mustRegistry(t), t.TempDir()
	id := mustIssue(t, *r.cluster, fleet.RoleHub, "one")
	if err := pki.Save(dir, id); err != nil {
		t.Fatal(err)
	}
	r.mustReplaceCA(t, start)
	r.mustReplaceCA(t, start)
	hub := r.mustHubOf(t, start)
	with := id.WithAuthorities([]*x509.Certificate{hub.CA})
	with.Bridges, with.Former = hub.Bridges, hub.Former[1:]
	if err := pki.SaveAuthorities(dir, with); err != nil {
		t.Fatal(err)
	}
	if err := pki.SaveAuthority(dir, mustCA(t, *r.cluster)); err != nil {
		t.Fatal(err)
	}
	got, ok, err := pki.Load(dir)
	if err != nil || !ok || !got.CA.Equal(id.CA) || len(got.Also) != 1 || len(got.Bridges) != 2 || len(got.Former) != 1 {
		t.Fatalf("loaded %+v, %t, %v", got, ok, err)
	}
	ca, err := pki.LoadAuthority(dir, got.Authorities()...)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := ca.Renew(got, start.Add(day))
	if err != nil || !renewed.CA.Equal(hub.CA) || len(renewed.Bridges) != 2 || len(renewed.Also) != 1 {
		t.Fatalf("renewed %+v, %v", renewed, err)
	}
}
