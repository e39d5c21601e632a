package hub

import (
	"net"
	"strconv"
	"strings"

	"skerry/fleet"
)

// agentConfig is this hub's configuration by the names that Nomad's clients look for in
// /v1/agent/self, and three addresses of its own.
func (h *Hub) agentConfig() map[string]any {
	release, prerelease, _ := strings.Cut(h.cfg.Version, "-")
	addrs := map[string]any{"HTTP": h.addr.HTTP, "RPC": h.addr.QUIC, "Serf": h.addr.Gossip}
	return map[string]any{
		"Name": h.cfg.Name, "Region": h.cfg.Region, "Datacenter": fleet.DefaultDatacenter, "DataDir": h.dir.File(),
		"Version":        map[string]any{"Version": release, "VersionPrerelease": prerelease, "VersionMetadata": "", "Revision": ""},
		"BindAddr":       h.cfg.Bind,
		"AdvertiseAddrs": addrs, "Addresses": addrs,
		"Ports":  map[string]any{"HTTP": portOf(h.addr.HTTP), "RPC": portOf(h.addr.QUIC), "Serf": portOf(h.addr.Gossip)},
		"Server": map[string]any{"Enabled": true},
		"Client": map[string]any{"Enabled": false},
		"ACL":    map[string]any{"Enabled": h.access.Enabled(h.store.View())},
		"TLSConfig": map[string]any{
			"EnableHTTP": h.https != nil, "EnableRPC": true, "VerifyHTTPSClient": h.cfg.HTTPTLSClientCA != "",
		},
		"QUICAddr": h.addr.QUIC, "HTTPAddr": h.addr.HTTP, "GossipAddr": h.addr.Gossip,
	}
}

// portOf returns the port of host:port; 0: there is none.
func portOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return n
}
