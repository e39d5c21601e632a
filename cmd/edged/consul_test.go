package edged_test

import (
	"net/http/httptest"
	"testing"

	"skerry/edge/consul/consultest"
	"skerry/fleet"
)

// A node says that it has a Consul agent only if it is told where, and the agent answers.
func TestConsulAgentOfANode(t *testing.T) {
	agent := httptest.NewServer(consultest.New())
	defer agent.Close()
	for _, tc := range []struct {
		args []string
		want string
	}{{nil, ""}, {[]string{"--consul-address=" + agent.URL}, "1.21.0"}, {[]string{"--consul-address=127.0.0.1:9"}, ""}} {
		n, err := mustDescribe(t, tc.args...)
		if err != nil || n.Attributes[fleet.AttributeConsulVersion] != tc.want || n.HasConsul() != (tc.want != "") {
			t.Errorf("%q: %v, %v", tc.args, n.Attributes, err)
		}
	}
	for _, bad := range []string{"--consul-address=here", "--consul-token-file=/x"} {
		if _, err := mustDescribe(t, bad); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
