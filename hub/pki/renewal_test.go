package pki_test

import (
	"bytes"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/syncproto"
	"skerry/syncproto/enroll"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

const day = 24 * time.Hour

func TestRenewalAnswers(t *testing.T) {
	r := mustRegistry(t)
	r.known["edge:"+nodeID] = true // it is a member: that is no conflict here
	token := r.mustToken(0, fleet.RoleEdge)
	old := r.mustToken(day, fleet.RoleEdge)
	held := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID).Cert
	const other = "aaaaaaaa-1111-4222-8333-444455556666"
	for name, try := range map[string]struct {
		age   time.Duration // since it was issued
		token identity.Token
		role  string
		id    string
		want  fleet.Code
	}{
		"long before its end":            {},
		"a third is left":                {age: 244 * day},
		"it has ended":                   {age: 400 * day},
		"the grace is not over":          {age: 2 * 365 * day},
		"the grace is over":              {age: 2*365*day + time.Second, want: fleet.CodeCertExpiry},
		"over, with a token":             {age: 800 * day, token: token},
		"over, with one that expired":    {age: 800 * day, token: old, want: fleet.CodeTokenExpiry},
		"over, with one nobody knows":    {age: 800 * day, token: identity.NewToken(r.cluster.CACert), want: fleet.CodeTokenBad},
		"well, with one nobody knows":    {age: day, token: identity.NewToken(r.cluster.CACert)},
		"for another edge":               {id: other, want: fleet.CodeForbidden},
		"for another edge, with a token": {id: other, token: token, want: fleet.CodeForbidden},
		"for a hub":                      {role: fleet.RoleHub, id: "two", want: fleet.CodeForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			if try.role == "" {
				try.role = fleet.RoleEdge
			}
			if try.id == "" {
				try.id = nodeID
			}
			req := syncproto.Enroll{Role: try.role, ID: try.id, CSR: mustRequest(t, try.role, try.id)} // for a new key
			if try.token.ID != "" {
				req.TokenID, req.Secret = try.token.ID, try.token.Secret
			}
			r.records = nil
			now := start.Add(try.age)
			answer, err := mustEnrolment(t, r, now).Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}, Cert: held}, req)
			if fleet.CodeOf(err) != try.want {
				t.Fatalf("got %v, want code %q", err, try.want)
			}
			if err != nil {
				if len(r.records) != 0 || answer.Cert != nil {
					t.Fatal("a certificate was made nevertheless")
				}
				return
			}
			if len(r.records) != 1 || r.records[0].Replaces != held.SerialNumber.Text(16) {
				t.Fatalf("recorded: %+v", r.records)
			}
			if end := mustParse(t, answer.Cert).NotAfter; !end.Equal(now.Add(pki.CertValidity)) {
				t.Fatalf("it ends at %s", end)
			}
		})
	}
}

func TestTooLateSaysWhatToDo(t *testing.T) {
	r := mustRegistry(t)
	req := syncproto.Enroll{Role: fleet.RoleEdge, ID: nodeID, CSR: mustRequest(t, fleet.RoleEdge, nodeID)}
	held := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID).Cert
	_, err := mustEnrolment(t, r, start.Add(800*day)).Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}, Cert: held}, req)
	e := fleet.AsError(err)
	if !strings.Contains(e.Message, "ended at 2027-09-01T12:00:00Z, and was accepted until 2028-08-31T12:00:00Z") || !strings.Contains(e.Hint, "--token-file") {
		t.Fatalf("got %q, %q", e.Message, e.Hint)
	}
}

func TestEdgesHaveTheirOwnValidityAndGrace(t *testing.T) {
	r := mustRegistry(t)
	token := r.mustToken(0, fleet.RoleEdge, fleet.RoleHub)
	now := start
	e, err := pki.NewEnrolment(pki.EnrolConfig{
		Registry: r, Hubs: func() (quic, gossip []string) { return nil, nil }, Now: func() time.Time { return now },
		EdgeValidity: 2 * time.Hour, Grace: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(held *x509.Certificate, role, id string) (*x509.Certificate, error) {
		answer, err := e.Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}, Cert: held}, syncproto.Enroll{
			TokenID: token.ID, Secret: token.Secret, Role: role, ID: id, CSR: mustRequest(t, role, id),
		})
		if err != nil {
			return nil, err
		}
		return mustParse(t, answer.Cert), nil
	}
	hub, err := ask(nil, fleet.RoleHub, "two")
	if err != nil || hub.NotAfter.Sub(now) != pki.CertValidity {
		t.Fatalf("a hub's: %v, %v", hub, err)
	}
	edge, err := ask(nil, fleet.RoleEdge, nodeID)
	if err != nil || edge.NotAfter.Sub(now) != 2*time.Hour || edge.NotBefore.Sub(now) != -15*time.Minute {
		t.Fatalf("an edge's: %v, %v", edge, err)
	}
	token = identity.Token{}
	now = start.Add(3 * time.Hour)
	if _, err := ask(edge, fleet.RoleEdge, nodeID); err != nil {
		t.Fatalf("at the end of the grace: %v", err)
	}
	now = now.Add(time.Second)
	if _, err := ask(edge, fleet.RoleEdge, nodeID); fleet.CodeOf(err) != fleet.CodeCertExpiry {
		t.Fatalf("after it: %v", err)
	}
}

func mustParse(tb testing.TB, der []byte) *x509.Certificate {
	tb.Helper()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// An edge whose certificate ended while it was away renews it, whatever its clock
// says, at a hub whose own certificate was made after all that the edge knows.
func TestRenewOverTheWire(t *testing.T) {
	r := mustRegistry(t)
	r.known["edge:"+nodeID] = true
	held := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID)
	back := start.Add(400 * day)
	hub := mustServeAt(t, r, back)
	dialer := mustEndpoint(t, transport.Config{})
	for name, now := range map[string]time.Time{
		"the day it left": start, "1970": time.Unix(7, 0), "no time is known": {}, "the true time": back,
	} {
		t.Run(name, func(t *testing.T) {
			renewed, _, err := enroll.Enroll(t.Context(), dialer, hub.addr, enroll.Applicant{
				Held: held, Role: fleet.RoleEdge, ID: nodeID, Key: held.Key, Now: func() time.Time { return now },
			})
			if err != nil {
				t.Fatal(err)
			}
			if !renewed.Cert.NotAfter.Equal(back.Add(pki.CertValidity)) || !renewed.Key.Equal(held.Key) {
				t.Fatalf("renewed until %s", renewed.Cert.NotAfter)
			}
		})
	}
}

func TestRenewalOverTheWireIsRefused(t *testing.T) {
	r := mustRegistry(t)
	hub := mustServeAt(t, r, start)
	dialer := mustEndpoint(t, transport.Config{})
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	foreign := mustIssue(t, *mustRegistry(t).cluster, fleet.RoleEdge, nodeID)
	pretender := *foreign // takes the hub for its own cluster's, and shows what it has
	pretender.CA = hub.id.CA
	for name, try := range map[string]struct {
		a    enroll.Applicant
		want fleet.Code
	}{
		"no certificate and no token": {enroll.Applicant{
			Token: identity.NewToken(r.cluster.CACert), Key: key}, fleet.CodeTokenBad},
		"another cluster's edge": {enroll.Applicant{Held: &pretender, Key: foreign.Key}, fleet.CodeForbidden},
		"a hub as an edge": {enroll.Applicant{
			Held: mustIssue(t, *r.cluster, fleet.RoleHub, "two"), Key: key}, fleet.CodeForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			try.a.Role, try.a.ID, try.a.Now = fleet.RoleEdge, nodeID, func() time.Time { return start }
			_, _, err := enroll.Enroll(t.Context(), dialer, hub.addr, try.a)
			if fleet.CodeOf(err) != try.want {
				t.Fatalf("got %v, want %q", err, try.want)
			}
		})
	}
	if len(r.records) != 0 {
		t.Fatalf("issued: %+v", r.records)
	}
}

// mustServeAt serves at a time, with a hub's certificate of that time.
func mustServeAt(tb testing.TB, r *registry, now time.Time) server {
	tb.Helper()
	id, _, err := mustCA(tb, *r.cluster).Issue(fleet.RoleHub, "one", now)
	if err != nil {
		tb.Fatal(err)
	}
	return mustServeAs(tb, id, mustEnrolment(tb, r, now), now)
}

func TestAuthorityRenews(t *testing.T) {
	r := mustRegistry(t)
	ca, id := mustCA(t, *r.cluster), mustIssue(t, *r.cluster, fleet.RoleHub, "one")
	back := start.Add(3 * 365 * day) // long after its end
	renewed, err := ca.Renew(id, back)
	if err != nil {
		t.Fatal(err)
	}
	if renewed.Name != "one" || renewed.Role != fleet.RoleHub || !renewed.Key.Equal(id.Key) || !renewed.Cert.NotAfter.Equal(back.Add(pki.CertValidity)) {
		t.Fatalf("renewed as %s %s until %s", renewed.Role, renewed.Name, renewed.Cert.NotAfter)
	}
	if bytes.Equal(renewed.Cert.Raw, id.Cert.Raw) || pki.Record(renewed.Cert).Serial == pki.Record(id.Cert).Serial {
		t.Fatal("it is the same certificate")
	}
	if !slices.Equal(renewed.Cert.ExtKeyUsage, id.Cert.ExtKeyUsage) {
		t.Fatalf("for %v, and was for %v", renewed.Cert.ExtKeyUsage, id.Cert.ExtKeyUsage)
	}
	for name, now := range map[string]time.Time{"1970": time.Unix(8, 0), "2100": time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if _, err := ca.Renew(id, now); fleet.CodeOf(err) != fleet.CodeInvalid || fleet.AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckClock(t *testing.T) {
	ca := mustIssue(t, *mustRegistry(t).cluster, fleet.RoleHub, "one").CA
	for name, try := range map[string]struct {
		now time.Time
		ca  *x509.Certificate
		ok  bool
	}{
		"1970":                   {now: time.Unix(8, 0)},
		"before the CA was made": {now: start.Add(-2 * time.Hour), ca: ca},
		"that day, but no CA":    {now: start.Add(-2 * time.Hour), ok: true},
		"in the CA's time":       {now: start.Add(9 * 365 * day), ca: ca, ok: true},
		"after the CA's end":     {now: start.Add(pki.CAValidity + time.Second), ca: ca},
		"2100, but no CA":        {now: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), ok: true},
	} {
		if err := pki.CheckClock(try.now, try.ca); (err == nil) != try.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAuthorityIsKept(t *testing.T) {
	r, dir := mustRegistry(t), t.TempDir()
	id := mustIssue(t, *r.cluster, fleet.RoleHub, "one")
	if ca, err := pki.LoadAuthority(dir, id.CA); ca != nil || err != nil {
		t.Fatalf("nothing there: %v, %v", ca, err)
	}
	if err := pki.SaveAuthority(dir, mustCA(t, *r.cluster)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ca-key.pem")
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("the key's mode: %v, %v", fi, err)
	}
	ca, err := pki.LoadAuthority(dir, id.CA)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Renew(id, start.Add(400*day)); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.LoadAuthority(dir, mustIssue(t, *mustRegistry(t).cluster, fleet.RoleHub, "one").CA); err == nil {
		t.Fatal("taken for another cluster's CA")
	}
}

// Whatever the file holds, it is the key of that CA or refused.
func FuzzLoadAuthority(f *testing.F) {
	c, err := pki.NewCluster("global", start)
	if err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	if err := pki.SaveAuthority(dir, mustCA(f, c)); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		f.Fatal(err)
	}
	id := mustIssue(f, c, fleet.RoleHub, "one")
	own, err := identity.EncodeKey(id.Key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(own)
	f.Add(good[:len(good)/2])
	f.Add([]byte{})
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "ca-key.pem"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		ca, err := pki.LoadAuthority(dir, id.CA)
		if err != nil {
			return
		}
		if _, err := ca.Renew(id, start); err != nil { // checks what it signed
			t.Fatal(err)
		}
	})
}

// An edge that was expelled gets no certificate any more, whatever it shows.
func TestRevokedEdgesGetNoCertificate(t *testing.T) {
	r := mustRegistry(t)
	token := r.mustToken(0, fleet.RoleEdge)
	held := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID).Cert
	e := mustEnrolment(t, r, start)
	req := syncproto.Enroll{Role: fleet.RoleEdge, ID: nodeID, CSR: mustRequest(t, fleet.RoleEdge, nodeID)}
	withToken := req
	withToken.TokenID, withToken.Secret = token.ID, token.Secret
	for _, revoked := range []bool{false, true} {
		if revoked {
			r.revoked = map[fleet.NodeID]*fleet.Revocation{nodeID: {NodeID: nodeID, Reason: "stolen"}}
		}
		r.records = nil
		for name, try := range map[string]struct {
			held *x509.Certificate
			req  syncproto.Enroll
		}{
			"renewal": {held, req}, "renewal with a token": {held, withToken}, "as a newcomer": {nil, withToken},
		} {
			answer, err := e.Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}, Cert: try.held}, try.req)
			switch {
			case !revoked && err != nil:
				t.Fatalf("%s, not revoked: %v", name, err)
			case revoked && (fleet.CodeOf(err) != fleet.CodeRevoked || answer.Cert != nil || len(r.records) > 0):
				t.Fatalf("%s: %v, recorded %v", name, err, r.records)
			case revoked && !strings.Contains(fleet.AsError(err).Hint, "another node"):
				t.Fatalf("%s: the hint is %q", name, fleet.AsError(err).Hint)
			}
		}
	}
}
