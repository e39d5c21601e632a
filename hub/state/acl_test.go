package state_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

var aclTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func aclToken(accessor string, roles ...string) state.ACLTokenRecord {
	r := state.ACLTokenRecord{Hash: []byte("hash of " + accessor), ACLToken: fleet.ACLToken{
		AccessorID: accessor, Name: accessor, Type: fleet.ACLTokenClient, Policies: []string{"read"}, CreateTime: aclTime,
	}}
	for _, id := range roles {
		r.Roles = append(r.Roles, fleet.ACLTokenRole{ID: id})
	}
	return r
}

// storeAccess stores a row in each table of access control.
func (w *storeHarness) storeAccess() {
	w.Helper()
	end := aclTime.Add(time.Hour)
	ends := aclToken("t1", "r1")
	ends.ExpirationTime = &end
	w.mustApply(state.ACLBootstrap{Token: aclToken("t0")})
	w.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "read", Rules: `node { policy = "read" }`}})
	w.mustApply(state.ACLRoleStore{Role: fleet.ACLRole{ID: "r1", Name: "readers", Policies: []fleet.ACLRolePolicy{{Name: "read"}}}})
	w.mustApply(state.ACLTokenStore{Token: ends})
	w.mustApply(state.ACLOneTimeStore{Token: state.OneTimeToken{Hash: []byte("one"), AccessorID: "t1", Secret: []byte("sealed"), ExpiresAt: end}})
	w.mustApply(state.ACLAuthMethodStore{Method: authMethod("sso", fleet.ACLAuthMethodOIDC, true)})
	w.mustApply(state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: "b1", AuthMethod: "sso", BindType: fleet.ACLBindPolicy, BindName: "read", CreateTime: aclTime, ModifyTime: aclTime}})
}

// siteCode is a site code that ends at a time.
func siteCode(id string, end time.Time) state.SiteCodeRecord {
	return state.SiteCodeRecord{Hash: fleet.SiteCodeHash{Salt: []byte("salt"), Hash: []byte("hash"), Rounds: 1}, SiteCode: fleet.SiteCode{
		ID: id, Name: "Ann", Site: "shop-*", NodePool: "*", Policies: []string{"read"}, CreateTime: aclTime, ExpirationTime: end}}
}

func authMethod(name, kind string, isDefault bool) state.ACLAuthMethodRecord {
	return state.ACLAuthMethodRecord{Secret: state.WrappedSecret{Data: []byte("hash of nothing"), By: "k"}, ACLAuthMethod: fleet.ACLAuthMethod{
		Name: name, Type: kind, TokenLocality: "global", MaxTokenTTL: fleet.TextDuration(time.Hour), Default: isDefault, CreateTime: aclTime, ModifyTime: aclTime,
		Config: &fleet.ACLAuthMethodConfig{OIDCDiscoveryURL: "https://sso.example.com", OIDCClientID: "c", ClaimMappings: map[string]string{"sub": "user"}},
	}}
}

// mustRefuseACL applies a command that is refused with a code and a message.
func (w *storeHarness) mustRefuseACL(c state.Command, code fleet.Code, message string) {
	w.Helper()
	if res := w.mustRefuse(code, c); !strings.Contains(res.Err.Error(), message) {
		w.Fatalf("apply %+v: %v, not %q", c, res.Err, message)
	}
}

func TestACLCommands(t *testing.T) {
	w := newTestHarness(t)
	w.storeAccess()
	again := aclToken("t2")
	w.mustRefuseACL(state.ACLBootstrap{Token: again}, fleet.CodeConflict, "ACL bootstrap already done (reset index: 1)")
	w.mustApply(state.ACLBootstrap{Token: again, Reset: 1})
	w.mustRefuseACL(state.ACLBootstrap{Token: aclToken("t3"), Reset: 1}, fleet.CodeConflict, "reset index")
	same := aclToken("t4")
	same.Hash = again.Hash
	w.mustRefuseACL(state.ACLTokenStore{Token: same}, fleet.CodeConflict, "the same secret")
	w.mustRefuseACL(state.ACLTokenStore{Token: aclToken("t5", "r9")}, fleet.CodeInvalid, "there is no role r9")
	w.mustRefuseACL(state.ACLTokenStore{Token: aclToken("t1")}, fleet.CodeConflict, "there is a token t1")
	unknown := aclToken("t6")
	unknown.Hash = nil
	w.mustRefuseACL(state.ACLTokenStore{Token: unknown}, fleet.CodeNotFound, "no such token")
	w.mustRefuseACL(state.ACLRoleStore{Role: fleet.ACLRole{ID: "r2", Name: "readers", Policies: []fleet.ACLRolePolicy{{Name: "read"}}}}, fleet.CodeConflict, "has this name")
	w.mustRefuseACL(state.ACLRoleStore{Role: fleet.ACLRole{ID: "r2", Name: "others", Policies: []fleet.ACLRolePolicy{{Name: "none"}}}}, fleet.CodeInvalid, `no policy "none"`)
	w.mustRefuseACL(state.ACLDelete{Policies: []string{"read"}, Tokens: []string{"t9"}}, fleet.CodeNotFound, "token t9")
	w.mustRefuseACL(state.ACLOneTimeStore{Token: state.OneTimeToken{Hash: []byte("x"), AccessorID: "t9"}}, fleet.CodeNotFound, "no token t9")

	v := w.store.View()
	if _, ok := v.ACLPolicy("read"); !ok {
		t.Error("a refused deletion removed a policy")
	}
	if found, ok := v.ACLTokenByHash([]byte("hash of t1")); !ok || found.AccessorID != "t1" {
		t.Errorf("by the hash: %+v, %v", found, ok)
	} else if shown := v.ACLTokenShown(found); shown.Roles[0].Name != "readers" {
		t.Errorf("shown: %+v", shown)
	}
	if _, ok := v.ACLTokenByHash([]byte("hash of t")); ok {
		t.Error("the beginning of a hash is enough")
	}
	changed := aclToken("t1", "r1")
	changed.Hash, changed.Name = nil, "other"
	w.mustApply(state.ACLTokenStore{Token: changed})
	if now, _ := w.store.View().ACLToken("t1"); now.Name != "other" || now.ExpirationTime == nil || !bytes.Equal(now.Hash, []byte("hash of t1")) {
		t.Errorf("changed: %+v", now)
	}
	w.mustApply(state.ACLDelete{Roles: []string{"r1"}})
	now, _ := w.store.View().ACLToken("t1")
	if shown := w.store.View().ACLTokenShown(now); len(shown.Roles) != 0 {
		t.Errorf("a role that is gone is shown: %+v", shown)
	}
}

func TestOneTimeTokenAndExpiry(t *testing.T) {
	w := newTestHarness(t)
	w.storeAccess()
	end := aclTime.Add(time.Hour)
	w.mustRefuseACL(state.ACLOneTimeUse{Hash: []byte("one"), Now: end}, fleet.CodeForbidden, "has ended")
	w.mustApply(state.ACLOneTimeUse{Hash: []byte("one"), Now: aclTime})
	w.mustRefuseACL(state.ACLOneTimeUse{Hash: []byte("one"), Now: aclTime}, fleet.CodeForbidden, "was used")
	if accessors, _ := w.store.View().ExpiredACLTokens(aclTime); len(accessors) > 0 {
		t.Errorf("expired early: %v", accessors)
	}
	w.mustApply(state.ACLOneTimeStore{Token: state.OneTimeToken{Hash: []byte("two"), AccessorID: "t1", ExpiresAt: end}})
	accessors, oneTime := w.store.View().ExpiredACLTokens(end)
	if len(accessors) != 1 || accessors[0] != "t1" || len(oneTime) != 1 {
		t.Fatalf("expired: %v, %q", accessors, oneTime)
	}
	w.mustApply(state.ACLExpire{Tokens: []string{"t0", "t1", "t9"}, OneTime: oneTime, Now: end})
	v := w.store.View()
	_, kept := v.ACLToken("t0")
	_, gone := v.ACLToken("t1")
	_, once := v.OneTimeToken([]byte("two"))
	if !kept || gone || once {
		t.Errorf("after the collection: %v, %v, %v", kept, gone, once)
	}
}

// A restore does not bring a deleted token back. A cluster without access control gets that of the snapshot.
func TestRestoreKeepsAccess(t *testing.T) {
	old := clustered(newTestHarness(t))
	old.storeAccess()
	file := mustPersist(t, old.store)
	old.mustApply(state.ACLDelete{Tokens: []string{"t1"}})
	old.mustApply(state.ACLAuthDelete{Methods: []string{"sso"}, Rules: []string{"b1"}})
	old.restoreSnapshot(file)
	if _, back := old.store.View().ACLAuthMethod("sso"); back {
		t.Error("a deleted auth method came back")
	}
	if _, back := old.store.View().ACLBindingRule("b1"); back {
		t.Error("a deleted binding rule came back")
	}
	if _, back := old.store.View().ACLToken("t1"); back {
		t.Error("a deleted token came back")
	}
	fresh := clustered(newTestHarness(t))
	for fresh.index < old.index {
		fresh.mustApply(state.Pool{Pool: fleet.Pool{Name: "ships"}})
	}
	fresh.restoreSnapshot(file)
	if _, there := fresh.store.View().ACLTokenByHash([]byte("hash of t1")); !there {
		t.Error("a new cluster did not get the tokens of the snapshot")
	}
	if method, there := fresh.store.View().ACLAuthMethod("sso"); !there || method.Secret.By != "k" || method.MaxTokenTTL != fleet.TextDuration(time.Hour) {
		t.Errorf("a new cluster did not get the auth method of the snapshot: %+v", method)
	}
	if _, on := fresh.store.View().ACLBootstrap(); !on {
		t.Error("a new cluster with the snapshot's tokens has no access control")
	}
}

// Events tell of policies, roles and tokens, without anything secret.
func TestACLEvents(t *testing.T) {
	w := newTestHarness(t)
	w.storeAccess()
	w.mustApply(state.ACLDelete{Policies: []string{"read"}, Tokens: []string{"t1"}, Roles: []string{"r1"}})
	var types []string
	for _, happened := range w.store.View().EventsAfter(0) {
		for _, e := range happened {
			types = append(types, e.Type+" "+e.Key)
			text, err := json.Marshal(e)
			if err != nil || bytes.Contains(text, []byte("hash of")) || bytes.Contains(text, []byte("aGFzaCBvZi")) {
				t.Errorf("the event %s, %v", text, err)
			}
		}
	}
	want := "ACLTokenUpserted t0, ACLPolicyUpserted read, ACLRoleUpserted r1, ACLTokenUpserted t1, ACLAuthMethodUpserted sso, ACLBindingRuleUpserted b1, ACLPolicyDeleted read, ACLRoleDeleted r1, ACLTokenDeleted t1"
	if got := strings.Join(types, ", "); got != want {
		t.Errorf("%s\nnot %s", got, want)
	}
}

// An auth method keeps the time of its creation, and is the only default of its type. A rule needs its method; the
// deletion of a method leaves its rules and tokens, as in Nomad.
func TestAuthMethodsAndBindingRules(t *testing.T) {
	w := newTestHarness(t)
	w.storeAccess()
	bare := authMethod("bare", fleet.ACLAuthMethodJWT, false)
	bare.Config = nil
	w.mustRefuseACL(state.ACLAuthMethodStore{Method: bare}, fleet.CodeInvalid, "no configuration")
	clear := authMethod("clear", fleet.ACLAuthMethodOIDC, false)
	clear.Config.OIDCClientSecret = "s3cret"
	w.mustRefuseACL(state.ACLAuthMethodStore{Method: clear}, fleet.CodeInvalid, "a secret in clear")
	w.mustRefuseACL(state.ACLAuthMethodStore{Method: authMethod("other", fleet.ACLAuthMethodOIDC, true)}, fleet.CodeConflict, `"sso" is the default of the type OIDC`)
	w.mustApply(state.ACLAuthMethodStore{Method: authMethod("ci", fleet.ACLAuthMethodJWT, true)})
	again := authMethod("sso", fleet.ACLAuthMethodOIDC, true)
	again.CreateTime, again.ModifyTime = aclTime.Add(time.Hour), aclTime.Add(time.Hour)
	w.mustApply(state.ACLAuthMethodStore{Method: again})
	stored, _ := w.store.View().ACLAuthMethod("sso")
	if !stored.CreateTime.Equal(aclTime) || stored.ModifyTime.Equal(aclTime) || stored.CreateIndex >= stored.ModifyIndex {
		t.Errorf("changed: %+v", stored)
	}
	if shown := stored.ShownMethod(); shown.Config.OIDCClientSecret != fleet.RedactedSecret || stored.Config.OIDCClientSecret != "" {
		t.Errorf("shown: %+v", shown.Config)
	}
	w.mustRefuseACL(state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: "b2", AuthMethod: "none"}}, fleet.CodeInvalid, `no auth method "none"`)
	w.mustRefuseACL(state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{AuthMethod: "sso"}}, fleet.CodeInvalid, "it has no id")
	w.mustRefuseACL(state.ACLAuthDelete{Methods: []string{"ci"}, Rules: []string{"b9"}}, fleet.CodeNotFound, "binding rule b9")
	if _, there := w.store.View().ACLAuthMethod("ci"); !there {
		t.Error("a refused deletion removed an auth method")
	}
	w.mustApply(state.ACLAuthDelete{Methods: []string{"sso"}})
	v := w.store.View()
	_, rule := v.ACLBindingRule("b1")
	_, token := v.ACLToken("t1")
	if _, method := v.ACLAuthMethod("sso"); method || !rule || !token {
		t.Errorf("after the deletion: method %v, rule %v, token %v", method, rule, token)
	}
}
