package fingerprint

import (
	"net"
	"net/netip"
)

// distantAddresses are reserved for documentation. The route to them is the default route, and nothing is sent.
var distantAddresses = []string{"192.0.2.1:9", "[2001:db8::1]:9"}

// Address returns the address by which others reach this machine: the source address towards the first hub with a
// numeric address; otherwise the source address of the default route; otherwise the first global address of an
// interface. It asks the kernel for routes only, and sends and resolves nothing. "": the machine has none.
func Address(hubs []string) string {
	for _, hub := range hubs {
		if to, err := netip.ParseAddrPort(hub); err == nil {
			if ip := sourceAddress(to.String()); ip != "" {
				return ip
			}
		}
	}
	for _, there := range distantAddresses {
		if ip := sourceAddress(there); ip != "" {
			return ip
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	return firstGlobal(addrs)
}

// sourceAddress returns the address from which this machine would send to another one; "": there is no route.
// It sends nothing.
func sourceAddress(there string) string {
	conn, err := net.Dial("udp", there)
	if err != nil {
		return ""
	}
	defer conn.Close()
	from, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok || from.IP.IsUnspecified() {
		return ""
	}
	return from.IP.String()
}

// firstGlobal returns the first global address of addrs, IPv4 before IPv6; "": there is none.
func firstGlobal(addrs []net.Addr) string {
	found := ""
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil:
			return n.IP.String()
		case found == "":
			found = n.IP.String()
		}
	}
	return found
}
