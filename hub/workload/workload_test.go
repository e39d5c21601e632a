package workload_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
	"skerry/hub/workload"
)

type fixedKey struct{ private *rsa.PrivateKey }

func (k fixedKey) signingKey(context.Context) (string, *rsa.PrivateKey, error) {
	return "k1", k.private, nil
}

// newSigner returns a signer, and the state with its public key.
func newSigner(tb testing.TB, issuer string) (*workload.Signer, *state.View) {
	tb.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		tb.Fatal(err)
	}
	log := statetest.NewLog()
	log.MustApply(tb, state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k1"}, Wrapped: []byte{1}, WrappedBy: "s", Signing: &state.SigningKey{Public: public, Wrapped: []byte{1}, WrappedBy: "s"}}})
	log.MustApply(tb, state.RootKeyStore{Key: state.RootKey{RootKey: fleet.RootKey{KeyID: "k2"}, Wrapped: []byte{1}, WrappedBy: "s"}})
	return &workload.Signer{Key: fixedKey{private}.signingKey, Issuer: issuer, Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}, log.Store.View()
}

func shopAlloc() *fleet.Alloc {
	return &fleet.Alloc{ID: "5c6328f7-48c5-4d03-bada-91ef2e904d0d", Namespace: "default", JobID: "shop/dispatch-1", TaskGroup: "web", Job: &fleet.Job{ID: "shop/dispatch-1", ParentID: "shop", Region: "global"}}
}

// TestClaims: a token has Nomad's header and claims, byte for byte but for its own ID.
func TestClaims(t *testing.T) {
	for _, tc := range []struct {
		issuer   string
		identity fleet.WorkloadIdentity
		service  string
		want     string
	}{
		{"", fleet.WorkloadIdentity{Name: "default", Audience: []string{"nomadproject.io"}}, "",
			`{"sub":"global:default:shop:web:main:default","aud":"nomadproject.io","iat":1700000000,"nbf":1700000000,"jti":"ID","nomad_namespace":"default","nomad_job_id":"shop","nomad_allocation_id":"5c6328f7-48c5-4d03-bada-91ef2e904d0d","nomad_task":"main"}`},
		{"https://h", fleet.WorkloadIdentity{Name: "aws", Audience: []string{"sts.amazonaws.com", "x"}, TTL: time.Hour}, "",
			`{"iss":"https://h","sub":"global:default:shop:web:main:aws","aud":["sts.amazonaws.com","x"],"iat":1700000000,"nbf":1700000000,"exp":1700003600,"jti":"ID","nomad_namespace":"default","nomad_job_id":"shop","nomad_allocation_id":"5c6328f7-48c5-4d03-bada-91ef2e904d0d","nomad_task":"main"}`},
		{"", fleet.WorkloadIdentity{Name: "consul-service_main-api-80", Audience: []string{"consul.io"}}, "api",
			`{"sub":"global:default:shop:web:api:consul-service_main-api-80","aud":"consul.io","iat":1700000000,"nbf":1700000000,"jti":"ID","nomad_namespace":"default","nomad_job_id":"shop","nomad_allocation_id":"5c6328f7-48c5-4d03-bada-91ef2e904d0d","nomad_service":"api"}`},
	} {
		signer, v := newSigner(t, tc.issuer)
		made, err := signer.SignIdentity(t.Context(), shopAlloc(), &fleet.OwnedIdentity{Task: "main", Service: tc.service, WorkloadIdentity: tc.identity})
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(made.Text, ".")
		header, _ := base64.RawURLEncoding.DecodeString(parts[0])
		payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
		if string(header) != `{"alg":"RS256","kid":"k1","typ":"JWT"}` || strings.Replace(string(payload), made.ID, "ID", 1) != tc.want {
			t.Errorf("%s %s", header, payload)
		}
		if got, err := workload.Verify(made.Text, v.IdentityKey); err != nil || fmt.Sprint(got) != fmt.Sprint(made.Claims) {
			t.Errorf("verified as %+v, %v", got, err)
		}
	}
}

// FuzzVerify: no text makes it panic, and it accepts none that the key has not signed.
func FuzzVerify(f *testing.F) {
	signer, v := newSigner(f, "")
	made, err := signer.SignIdentity(f.Context(), shopAlloc(), &fleet.OwnedIdentity{Task: "main", WorkloadIdentity: fleet.WorkloadIdentity{Name: "default"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add(`{"payload":"e30","protected":"eyJhbGciOiJSUzI1NiJ9","signature":""}`)
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := workload.Verify(text, v.IdentityKey); err == nil && text != made.Text {
			t.Fatalf("accepted %q as %+v", text, c)
		}
	})
}

// TestClaimsOfEdges: the claims of an edge's token have these names, which edge/identities writes.
func TestClaimsOfEdges(t *testing.T) {
	b, err := json.Marshal(workload.Claims{Node: "n", Offline: true})
	var names map[string]any
	if err == nil {
		err = json.Unmarshal(b, &names)
	}
	if err != nil || names["skerry_node_id"] != "n" || names["skerry_offline"] != true {
		t.Errorf("%s, %v", b, err)
	}
}
