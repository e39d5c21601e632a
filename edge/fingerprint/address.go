package fingerprint

import (
	"net"
	"net/netip"
)

// distantAddresses are addresses that are reserved for documentation: nothing is sent there. The
// route to them is the default one.
var distantAddresses = []string{"192.0.2.1:9", "[2001:db8::1]:9"}

// Address finds the address by which others reach this machine: the one that it dials
// the first hub from whose address is a number; else the one that its default route
// leaves from; else the first that is not for this machine or its cable alone. It asks
// the kernel for routes, and sends and resolves nothing. "": the machine has none.
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

// sourceAddress is the address that packets to another one leave from; "" where there is no
// way there.
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

// firstGlobal is the first address that is routed, IPv4 before IPv6.
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
