package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/sitecode"
	"skerry/syncproto"
)

// TestSiteCodes creates, lists and revokes a code. What the person types is in one answer alone, and is in no state, audit
// or list.
func TestSiteCodes(t *testing.T) {
	a := newACLHub(t)
	c, _ := a.mustBootstrap()
	for name, rules := range map[string]string{"tills": `local { policy = "write" }`, "nothing": `node { policy = "read" }`, "denied": `local { policy = "deny" }`} {
		mustApply(t, a.hub, state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: name, Rules: rules}})
	}
	good := api.SiteCodeRequest{Name: " Ann ", Site: "shop-*", Policies: []string{"tills"}, TTL: "720h"}
	var made api.CreatedSiteCode
	_, err := c.Raw().Write("/v1/acl/site-code", good, &made, nil)
	mustSucceed(t, err)
	id, secret, err := sitecode.Parse(made.Code)
	mustSucceed(t, err)
	kept, ok := a.hub.store.View().SiteCode(id)
	if !ok || made.ID != id || made.Name != "Ann" || made.NodePool != "*" || !made.ExpirationTime.Equal(a.now.Add(720*time.Hour)) || !sitecode.Matches(secret, kept.Hash) {
		t.Errorf("made %+v, kept %+v", made, kept)
	}
	for what, change := range map[string]func(r *api.SiteCodeRequest){
		"does not name the person": func(r *api.SiteCodeRequest) { r.Name = " " }, "or a control character": func(r *api.SiteCodeRequest) { r.Name = "A\x00" },
		"it names no site": func(r *api.SiteCodeRequest) { r.Site = "" }, "more than 256 bytes": func(r *api.SiteCodeRequest) { r.NodePool = strings.Repeat("p", 300) },
		`no policy "missing"`: func(r *api.SiteCodeRequest) { r.Policies = []string{"tills", "missing"} }, "allow nothing on site": func(r *api.SiteCodeRequest) { r.Policies = []string{"nothing"} },
		"nothing on site": func(r *api.SiteCodeRequest) { r.Policies = []string{"tills", "denied"} }, `end after ""`: func(r *api.SiteCodeRequest) { r.TTL = "" },
		`end after "30d"`: func(r *api.SiteCodeRequest) { r.TTL = "30d" }, `end after "17521h"`: func(r *api.SiteCodeRequest) { r.TTL = "17521h" },
	} {
		bad := good
		change(&bad)
		_, err := c.Raw().Write("/v1/acl/site-code", bad, nil, nil)
		mustFailWith(t, err, "400", what)
	}
	mustApply(t, a.hub, state.NodeRegister{Node: fleet.Node{ID: nodeID, Name: "till", Datacenter: "dc1", Site: "harbour", NodePool: fleet.DefaultPool}, Now: 1})
	for i := range syncproto.MaxSiteCodes {
		mustApply(t, a.hub, state.SiteCodeStore{Code: state.SiteCodeRecord{SiteCode: fleet.SiteCode{
			ID: fmt.Sprintf("-%03d", i), Site: "harbour", NodePool: "*", ExpirationTime: a.now.Add(time.Minute)}}})
	}
	full := good
	full.Site = "*"
	_, err = c.Raw().Write("/v1/acl/site-code", full, nil, nil)
	mustFailWith(t, err, "409", "the nodes of site harbour in the node pool default take 100 already")
	a.now = a.now.Add(time.Minute)
	_, err = c.Raw().Write("/v1/acl/site-code", full, nil, nil)
	mustSucceed(t, err)
	a.now = a.now.Add(-time.Minute)
	mustApply(t, a.hub, state.SiteCodeExpire{IDs: a.hub.store.View().ExpiredSiteCodes(a.now.Add(time.Minute)), Now: a.now.Add(time.Minute)})
	var list []fleet.SiteCode
	_, err = c.Raw().Query("/v1/acl/site-codes", &list, nil)
	mustSucceed(t, err)
	list = slices.DeleteFunc(list, func(c fleet.SiteCode) bool { return c.Site == "*" })
	if len(list) != 1 || list[0].ID != id || list[0].RevokeTime != nil {
		t.Errorf("listed %+v", list)
	}
	_, err = c.Raw().Delete("/v1/acl/site-code/zzzz", nil, nil)
	mustFailWith(t, err, "404", "there is no such code")
	_, err = c.Raw().Delete("/v1/acl/site-code/"+strings.ToUpper(id), nil, nil)
	mustSucceed(t, err)
	if kept, _ = a.hub.store.View().SiteCode(id); kept.RevokeTime == nil || !kept.RevokeTime.Equal(a.now) {
		t.Errorf("revoked is %+v", kept)
	}
	written, err := json.Marshal(a.audit.entries)
	mustSucceed(t, err)
	for where, text := range map[string]string{"audit": string(written), "state": fmt.Sprintf("%+v", kept), "list": fmt.Sprintf("%+v", list)} {
		if strings.Contains(text, secret) || strings.Contains(text, made.Code) {
			t.Errorf("the code is in the %s: %s", where, text)
		}
	}
}
