package api

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto/identity"
)

// States of a CA in an answer.
const (
	caDistributing = "distributing" // hubs are storing it
	caSigning      = "signing"
	caReplaced     = "replaced" // edges get in with its certificates
	caEnded        = "ended"    // edges renew its certificates with a proof of their key
)

const (
	defaultCAGrace = 400 * 24 * time.Hour
	maxCAGrace     = 10 * 365 * 24 * time.Hour
	maxCAEdges     = 1000 // named in an answer
)

func (a *API) caEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/operator/ca", onOperator("read"), a.readHandler(a.readCAStatus)},
		{writes, "/v1/operator/ca/rotate", managementOnly, writeOptionalBody(a, a.rotateCA)},
	}
}

// rotateCA makes another CA. The hubs and edges take it over by themselves.
func (a *API) rotateCA(r *http.Request, req api.RotateCARequest) (any, fleet.Index, error) {
	grace := defaultCAGrace
	if req.Grace != "" {
		var err error
		if grace, err = time.ParseDuration(req.Grace); err != nil || grace < 0 || grace > maxCAGrace {
			return nil, 0, fleet.Errorf(fleet.CodeInvalid, "rotate the CA: the grace %q is not a time like 9600h, from 0 to %s", req.Grace, maxCAGrace)
		}
	}
	if a.cfg.CA == nil {
		return nil, 0, fleet.Errorf(fleet.CodeUnsupported, "rotate the CA: this hub has none")
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	made, index, err := a.cfg.CA.Begin(r.Context(), grace)
	if err != nil {
		return nil, index, err
	}
	a.cfg.Log.Info("rotation of the CA begun", "ca", made.Number, "grace", grace)
	return api.RotatedCA{Number: made.Number, Hash: hashOfCA(made.Cert), Index: index}, index, nil
}

// hashOfCA returns the hash of a CA as client.ParseCAHash reads it.
func hashOfCA(cert []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(cert)) }

// readCAStatus answers with the CAs, and with the hubs and edges that do not have the newest one yet.
func (a *API) readCAStatus(v *state.View, _ *http.Request, _ query) (any, fleet.Index, error) {
	cas := v.CAs()
	if len(cas) == 0 {
		return nil, 0, fleet.Errorf(fleet.CodeUnavailable, "read the cluster's CAs: this hub does not know its cluster yet")
	}
	index := max(v.TableIndex("cas"), v.TableIndex("cluster"), v.TableIndex("hubs"), v.TableIndex("nodes"), v.TableIndex("certificates"))
	answer := api.CAStatus{UnderWay: cas.Newest().SettledAt == 0, Index: index}
	now := a.cfg.Now()
	for i, ca := range cas {
		shown, err := shownCA(cas, i, now)
		if err != nil {
			return nil, 0, err
		}
		for _, hub := range v.Hubs() {
			if ca.Number == 1 || slices.Contains(ca.Stored, hub.ID) {
				shown.Hubs = append(shown.Hubs, hub.ID)
			}
		}
		answer.CAs = append(answer.CAs, shown)
	}
	if newest := cas.Newest(); answer.UnderWay {
		done := newest.Stored
		if newest.SignsSince != 0 {
			done = newest.Renewed
		}
		for _, hub := range v.Hubs() {
			if !slices.Contains(done, hub.ID) {
				answer.HubsMissing = append(answer.HubsMissing, hub.ID)
			}
		}
	}
	countEdgesOfCAs(v, &answer)
	return answer, index, nil
}

// shownCA returns the CA at a position as the API shows it.
func shownCA(cas state.CAs, i int, now time.Time) (api.CA, error) {
	ca := cas[i]
	cert, err := x509.ParseCertificate(ca.Cert)
	if err != nil {
		return api.CA{}, fmt.Errorf("parse CA %d: %w", ca.Number, err)
	}
	shown := api.CA{
		Number: ca.Number, ID: identity.CAID(ca.Cert), Hash: hashOfCA(ca.Cert), Subject: cert.Subject.CommonName, NotAfter: cert.NotAfter, Status: caSigning,
	}
	if end := cas.GraceEnd(i); end != 0 {
		at := time.Unix(0, end).UTC()
		shown.GraceEnd, shown.Status = &at, caReplaced
		if now.After(at) {
			shown.Status = caEnded
		}
	}
	if i > cas.Signing() {
		shown.Status = caDistributing
	}
	return shown, nil
}

// countEdgesOfCAs counts the edges that have each CA, and lists those that do not have the newest one.
func countEdgesOfCAs(v *state.View, answer *api.CAStatus) {
	certified := v.CertifiedBy()
	newest := &answer.CAs[len(answer.CAs)-1]
	for n := range v.Nodes("") {
		if n.Revoked != nil {
			continue
		}
		answer.Edges++
		by := max(certified[identity.CommonName(fleet.RoleEdge, string(n.ID))], 1)
		held := strings.Split(n.Attributes[fleet.AttributeCAs], ",")
		for i := range answer.CAs {
			ca := &answer.CAs[i]
			if slices.Contains(held, ca.ID) {
				ca.Edges++
			}
			if ca.Number == by {
				ca.EdgesCertified++
			}
		}
		if slices.Contains(held, newest.ID) {
			continue
		}
		answer.EdgesMissingTotal++
		if len(answer.EdgesMissing) < maxCAEdges {
			answer.EdgesMissing = append(answer.EdgesMissing, api.CAEdge{ID: n.ID, Name: n.Name, Status: n.Status, CA: by})
		}
	}
}
