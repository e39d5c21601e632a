package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// The list of what an edge knew has no values, and each token sees of it what it may list. A variable that was stored after
// the revocation is known no longer. The list stays when a variable is deleted and the node is purged.
func TestNodeExposure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		storeToken(t, w.hub, "auditor", `node { policy = "read" } namespace "blue" { policy = "read" variables { path "nomad/*" { capabilities = ["list"] } } }`)
		job := "nomad/jobs/" + string(w.job.ID)
		w.storeVariable("blue", job)
		w.storeVariable("blue", job+"/other-group")
		w.storeVariable("red", job)
		ask := func(secret string) (e api.NodeExposure, body string) {
			t.Helper()
			answer := w.ask(http.MethodGet, "/v1/node/"+string(nodeID)+"/exposure", "", secret)
			if answer.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", secret, answer.Code, answer.Body)
			}
			body = answer.Body.String()
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatal(err)
			}
			return e, body
		}
		e, _ := ask("auditor")
		if len(e.Variables) != 1 || e.Variables[0].Path != job || e.Variables[0].Namespace != "blue" || e.Variables[0].Changed || e.Since != nil {
			t.Fatalf("variables %+v, since %v", e.Variables, e.Since)
		}
		if len(e.Allocations) == 0 || len(e.Variables[0].Allocations) != 1 || e.Variables[0].Allocations[0] != w.alloc {
			t.Fatalf("allocations %+v; of the variable %v", e.Allocations, e.Variables[0].Allocations)
		}
		if all, _ := ask(listSecret); len(all.SiteCodes) == 0 || len(e.SiteCodes) != 0 {
			t.Errorf("a management token sees %d site codes, another one %d", len(all.SiteCodes), len(e.SiteCodes))
		}
		if few, body := ask("nodes"); len(few.Variables) != 0 || len(few.Allocations) != 0 || strings.Contains(body, blueMark) {
			t.Errorf("a token for nodes alone sees %s", body)
		}
		row, _ := w.hub.store.View().Variable("blue", job)
		mustApply(t, w.hub, state.NodeRevoke{NodeID: nodeID, KeepExposure: true, EvalSeed: "s", Now: row.ModifyTime + 1})
		if e, _ := ask("auditor"); e.Since == nil || e.Variables[0].Changed {
			t.Errorf("revoked: since %v, %+v", e.Since, e.Variables)
		}
		mustApply(t, w.hub, state.VariableStore{Namespace: "blue", Path: job, Sealed: row.Sealed, Now: row.ModifyTime + 2})
		if e, _ := ask("auditor"); !e.Variables[0].Changed || e.Variables[0].ModifyIndex != fleet.Index(w.hub.index) {
			t.Errorf("replaced: %+v", e.Variables)
		}
		mustApply(t, w.hub, state.VariableDelete{Namespace: "blue", Path: job, TellEdges: true})
		mustApply(t, w.hub, state.NodePurge{NodeID: nodeID, EvalSeed: "s", Now: row.ModifyTime + 3})
		if e, _ := ask("auditor"); len(e.Variables) != 1 || !e.Variables[0].Deleted || e.Variables[0].Path != job || len(e.Allocations) == 0 {
			t.Errorf("purged: %+v", e)
		}
		if few, body := ask("nodes"); len(few.Variables) != 0 || len(few.Allocations) != 0 || strings.Contains(body, blueMark) {
			t.Errorf("a token for nodes alone sees of a purged node %s", body)
		}
	})
}
