package hub_test

import (
	"fmt"
	"maps"
	"net"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/hub"
)

// TestAgentConfigAndMemberTags reads, with Nomad's client, the configuration and the tags that its tools look for.
func TestAgentConfigAndMemberTags(t *testing.T) {
	hubs := mustClusterWith(t, 2, func(c *hub.Config) { c.Region, c.Version = "north", "1.2.3-beta" })
	asked := hubs[1]
	mustSelf := func(c *nomad.Client) map[string]any {
		t.Helper()
		self, err := c.Agent().Self()
		if err != nil {
			t.Fatal(err)
		}
		return self.Config
	}
	everybody := mustACLClient(t, asked, "")
	conf := mustSelf(everybody)
	version := map[string]any{"Version": "1.2.3", "VersionPrerelease": "beta", "VersionMetadata": "", "Revision": ""}
	if got, ok := conf["Version"].(map[string]any); !ok || !maps.Equal(got, version) || conf["Datacenter"] != "dc1" || conf["Region"] != "north" {
		t.Errorf("the hub's configuration is %v", conf)
	}
	if on := conf["ACL"].(map[string]any)["Enabled"]; on != false {
		t.Errorf("ACL.Enabled before the bootstrap is %v", on)
	}
	leader := mustMemberOfLeader(t, everybody)
	if leader.Name != mustLeader(t, hubs).cfg.Name || leader.Tags["dc"] != "dc1" || leader.Tags["region"] != "north" || leader.Tags["build"] != "1.2.3-beta" {
		t.Errorf("the member that leads is %+v", leader)
	}
	boot, _, err := everybody.ACLTokens().Bootstrap(nil)
	if err != nil {
		t.Fatal(err)
	}
	if on := mustSelf(mustACLClient(t, asked, boot.SecretID))["ACL"].(map[string]any)["Enabled"]; on != true {
		t.Errorf("ACL.Enabled after the bootstrap is %v", on)
	}
}

// mustMemberOfLeader finds the member that leads as Nomad's command server members does: by the address and the tag
// port.
func mustMemberOfLeader(tb testing.TB, c *nomad.Client) *nomad.AgentMember {
	tb.Helper()
	var found *nomad.AgentMember
	waitUntil(tb, "one member has the address of the leader", func() string { return fmt.Sprint(found) }, func() bool {
		address, err := c.Status().Leader()
		members, failed := c.Agent().Members()
		if err != nil || failed != nil {
			return false
		}
		for _, m := range members.Members {
			if net.JoinHostPort(m.Addr, m.Tags["port"]) == address {
				found = m
			}
		}
		return found != nil
	})
	return found
}
