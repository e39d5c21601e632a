package edged_test

import (
	"net/http/httptest"
	"testing"

	"skerry/edge/vault/vaulttest"
	"skerry/fleet"
)

// A node says that it has a Vault only if it is told where, and Vault answers.
func TestVaultOfANode(t *testing.T) {
	server := httptest.NewServer(vaulttest.New(nil))
	defer server.Close()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, ""}, {[]string{"--vault-address=" + server.URL, "--vault-namespace=team", "--vault-jwt-path=jwt-skerry", "--vault-role=r", "--vault-tls-server-name=v"}, "1.18.3"},
		{[]string{"--vault-address=http://127.0.0.1:9"}, ""},
	} {
		n, err := mustDescribe(t, tc.args...)
		if err != nil || n.Attributes[fleet.AttributeVaultVersion] != tc.want || n.HasVault() != (tc.want != "") {
			t.Errorf("%q: %v, %v", tc.args, n.Attributes, err)
		}
	}
	for _, bad := range []string{"--vault-address=here", "--vault-address=http://192.0.2.1:8200", "--vault-namespace=team", "--vault-role=r"} {
		if _, err := mustDescribe(t, bad); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
