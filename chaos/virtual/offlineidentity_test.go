package virtual_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/access"
	"skerry/hub/state"
	"skerry/hub/workload"
)

// offlineTask is a task with an offline identity on edge-a.
type offlineTask struct {
	*testing.T
	state func() *state.View
	alloc fleet.AllocID
	file  string
}

// mustSign fails unless the token in the task's file counts for the hubs now and was signed by the edge of a node, or by a
// hub for "".
func (o *offlineTask) mustSign(when string, node fleet.NodeID) (claims workload.Claims) {
	o.Helper()
	b, err := os.ReadFile(o.file)
	if err != nil {
		o.Fatal(err)
	}
	claims, err = workload.Verify(string(b), o.state().IdentityKey)
	if err == nil {
		_, err = access.CheckIdentity(o.state(), &claims, time.Now(), "")
	}
	if err != nil || claims.SignedBy != node || claims.AllocID != o.alloc {
		o.Fatalf("%s: signed by %q of %q, %v", when, claims.SignedBy, claims.AllocID, err)
	}
	return claims
}

// TestOfflineIdentities: while the hubs are out of its reach, an edge renews the token of its task, also after reboots. The
// hubs take it. With the link back the task has a token of a hub again, and the edge has another key.
func TestOfflineIdentities(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a")
		defer mustClose(t, c)
		job := service("till", 1)
		job.TaskGroups[0].Tasks[0].Identity = &fleet.WorkloadIdentity{Name: fleet.DefaultIdentity, File: true, TTL: 10 * time.Minute, Offline: true}
		validate.FillDefaults(job)
		mustRun(t, c, job)
		e := c.Edge("edge-a")
		node := e.Agent().NodeID()
		o := &offlineTask{T: t, state: func() *state.View { return lead(t, c).State().View() }}
		for a := range o.state().AllocsByJob(fleet.DefaultNamespace, "till") {
			o.alloc, o.file = a.ID, filepath.Join(e.Dir, "allocs", string(a.ID), "t", "secrets", "nomad_token")
		}
		time.Sleep(time.Hour)
		o.mustSign("with a link", "")
		published, _ := o.state().PublishedIdentityKey(node)
		if published == "" {
			t.Fatal("the key of the edge is not published")
		}

		cut := c.Net.Cut(fabric.Hosts("edge-a"), fabric.Everyone, fabric.Both, fabric.Silent)
		began := time.Now()
		for range 2 {
			time.Sleep(time.Hour)
			o.mustSign("without a link", node)
			if err := errors.Join(e.PowerCut(), os.Remove(o.file)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(12 * time.Hour)
			if err := e.Boot(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			o.mustSign("after a reboot without a link", node)
		}
		if err := e.PowerCut(); err != nil {
			t.Fatal(err)
		}
		e.Clock.Set(time.Unix(90, 0))
		if err := e.Boot(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		b, err := os.ReadFile(o.file)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := workload.Verify(string(b), o.state().IdentityKey)
		if err != nil || claims.SignedBy != node || claims.IssuedAt < began.Unix() {
			t.Errorf("with a clock in 1970: issued at %d, %v", claims.IssuedAt, err)
		}
		if _, err := access.CheckIdentity(o.state(), &claims, time.Now(), ""); err == nil {
			t.Error("the edge does not know how long it was off, and its token counts")
		}

		cut.Heal()
		mustCome(t, c, 10*time.Minute, "the edge is back", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 1 })
		time.Sleep(time.Minute)
		o.mustSign("with a link again", "")
		if now, _ := o.state().PublishedIdentityKey(node); now == "" || now == published {
			t.Errorf("the published key is %q, and was %q before the agent started again", now, published)
		}
		mustDo(t, c, "PUT", "/v1/node/"+string(node)+"/revoke", map[string]string{"Reason": "stolen"}, nil)
		if now, _ := o.state().PublishedIdentityKey(node); now != "" {
			t.Errorf("the key %s of a revoked node is published", now)
		}
	})
}
