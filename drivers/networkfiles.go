package drivers

import (
	"os"
	"strings"
)

// resolvedConf lists the name servers of systemd-resolved. A task in another network namespace cannot reach its stub.
const resolvedConf = "/run/systemd/resolve/resolv.conf"

// ResolvConf returns the file /etc/resolv.conf of a task. The machine's file has what the network does not say.
func (n Network) ResolvConf() string {
	machine := n.readMachineResolvConf()
	if n.DNS == nil {
		return machine
	}
	var lines []string
	add := func(kind string, own ...string) {
		if len(own) > 0 {
			lines = append(lines, own...)
			return
		}
		for line := range strings.Lines(machine) {
			if strings.HasPrefix(line, kind+" ") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	var servers []string
	for _, server := range n.DNS.Servers {
		servers = append(servers, "nameserver "+server)
	}
	add("nameserver", servers...)
	add("search", joinWords("search", n.DNS.Searches)...)
	add("options", joinWords("options", n.DNS.Options)...)
	return strings.Join(lines, "\n") + "\n"
}

// joinWords returns a line of a kind with words; none without words.
func joinWords(kind string, words []string) []string {
	if len(words) == 0 {
		return nil
	}
	return []string{kind + " " + strings.Join(words, " ")}
}

// readMachineResolvConf returns the machine's resolv.conf; "": it has none.
func (n Network) readMachineResolvConf() string {
	paths := []string{"/etc/resolv.conf"}
	if n.Namespace != "" {
		paths = []string{resolvedConf, "/etc/resolv.conf"}
	}
	for _, path := range paths {
		if content, err := os.ReadFile(path); err == nil {
			return string(content)
		}
	}
	return ""
}

// HostsFile returns the file /etc/hosts of a task.
func (n Network) HostsFile() string {
	lines := []string{"127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"}
	if n.Hostname != "" {
		address := n.IP
		if address == "" {
			address = "127.0.1.1"
		}
		lines = append(lines, address+" "+n.Hostname)
	}
	return strings.Join(append(lines, n.Hosts...), "\n") + "\n"
}
