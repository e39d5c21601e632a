package faultnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Netns is a Network of network namespaces: each member has one, with a veth
// pair to a bridge that has a namespace of its own, so that the machine's own
// network is left alone.
type Netns struct {
	prefix  string // of every namespace
	members map[string]int
}

// NewNetns makes the bridge. It needs root and iproute2. prefix tells runs on
// one machine apart; at most 6 characters.
func NewNetns(prefix string) (*Netns, error) {
	n := &Netns{prefix: prefix, members: map[string]int{}}
	if os.Geteuid() != 0 {
		return nil, errors.New("make network namespaces: root is needed (use the proxy instead)")
	}
	if err := ip("netns", "add", n.bridge()); err != nil {
		return nil, fmt.Errorf("make the bridge's namespace: %w", err)
	}
	for _, args := range [][]string{
		{"-n", n.bridge(), "link", "add", "br0", "type", "bridge"},
		{"-n", n.bridge(), "link", "set", "br0", "up"},
	} {
		if err := ip(args...); err != nil {
			return nil, errors.Join(fmt.Errorf("make the bridge: %w", err), n.Close())
		}
	}
	return n, nil
}

func (n *Netns) bridge() string            { return n.prefix + "-br" }
func (n *Netns) namespace(m string) string { return n.prefix + "-" + m }
func (n *Netns) port(m string) string      { return fmt.Sprintf("p%d", n.members[m]) }
func (n *Netns) address(number int) string {
	return fmt.Sprintf("10.77.%d.%d", number/250, number%250+1)
}

// Add makes a member's namespace, and its link to the bridge.
func (n *Netns) Add(name string, _ ...Port) (Place, error) {
	if _, ok := n.members[name]; ok {
		return Place{}, fmt.Errorf("add member %s: it is there already", name)
	}
	number := len(n.members) + 1
	n.members[name] = number
	ns, addr := n.namespace(name), n.address(number)
	for _, args := range [][]string{
		{"netns", "add", ns},
		{"-n", ns, "link", "add", "eth0", "type", "veth", "peer", "name", n.port(name), "netns", n.bridge()},
		{"-n", ns, "addr", "add", addr + "/16", "dev", "eth0"},
		{"-n", ns, "link", "set", "lo", "up"},
		{"-n", ns, "link", "set", "eth0", "up"},
		{"-n", n.bridge(), "link", "set", n.port(name), "master", "br0"},
		{"-n", n.bridge(), "link", "set", n.port(name), "up"},
	} {
		if err := ip(args...); err != nil {
			return Place{}, fmt.Errorf("add member %s: %w", name, err)
		}
	}
	return Place{Name: name, Bind: addr, Advertise: addr}, nil
}

// Command runs a program inside a member's namespace. The process keeps the pid
// that the command started with.
func (n *Netns) Command(member, program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.namespace(member), program}, args...)...)
}

// Dial opens a connection from inside a member's namespace. A socket belongs to
// the namespace that it was made in, wherever it is used.
func (n *Netns) Dial(ctx context.Context, member, addr string) (net.Conn, error) {
	var conn net.Conn
	err := inside("/run/netns/"+n.namespace(member), func() error {
		var d net.Dialer
		var err error
		conn, err = d.DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// Cut takes a member's port off the bridge: its link stays up and its packets
// vanish.
func (n *Netns) Cut(member string) error {
	return ip("-n", n.bridge(), "link", "set", n.port(member), "nomaster")
}

// Heal puts a member's port back on the bridge.
func (n *Netns) Heal(member string) error {
	return ip("-n", n.bridge(), "link", "set", n.port(member), "master", "br0")
}

// Close removes every namespace; what runs in them has to be gone.
func (n *Netns) Close() error {
	var errs []error
	for m := range n.members {
		errs = append(errs, ip("netns", "del", n.namespace(m)))
	}
	return errors.Join(append(errs, ip("netns", "del", n.bridge()))...)
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// inside runs f on a thread that is in the network namespace at path.
func inside(path string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("find this thread's namespace: %w", err)
	}
	defer home.Close()
	there, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open namespace: %w", err)
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", path, err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread is in the wrong namespace for good: end it with its goroutine.
		runtime.LockOSThread()
		return errors.Join(err, fmt.Errorf("leave namespace %s: %w", path, back))
	}
	return err
}
