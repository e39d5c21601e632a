package faultnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Netns is a Network of network namespaces. Each member has a namespace with a TUN device. This
// process holds the other ends of the devices, and forwards each packet by its target address. The
// network of the machine itself is not changed.
type Netns struct {
	prefix string // prefix of the namespaces' names
	*links
	wg sync.WaitGroup

	mu             sync.Mutex
	members        map[string]*switchMember
	byAddr         map[netip.Addr]*switchMember
	addressesGiven int // number of addresses given out so far
}

// NewNetns returns a network without members. It needs root and iproute2. prefix, of at most 6
// characters, separates concurrent runs on one machine.
func NewNetns(prefix string) (*Netns, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("make network namespaces: root is needed (use the proxy instead)")
	}
	return &Netns{
		prefix: prefix, links: newLinks(),
		members: map[string]*switchMember{}, byAddr: map[netip.Addr]*switchMember{},
	}, nil
}

func (n *Netns) namespaceName(m string) string { return n.prefix + "-" + m }

// nextAddress returns the next unused address of 10.77.0.0/16. The caller holds n.mu.
func (n *Netns) nextAddress() netip.Addr {
	n.addressesGiven++
	return netip.AddrFrom4([4]byte{10, 77, byte(n.addressesGiven / 250), byte(n.addressesGiven%250 + 1)})
}

// Add creates a member's namespace and device. Place.Bind is empty for a member without ports, so that
// Move can give it another address.
func (n *Netns) Add(name string, ports ...Port) (Place, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.members[name]; ok {
		return Place{}, fmt.Errorf("add member %s: a member of that name exists", name)
	}
	ns, addr := n.namespaceName(name), n.nextAddress()
	if err := runIPCommand("netns", "add", ns); err != nil {
		return Place{}, fmt.Errorf("add member %s: %w", name, err)
	}
	s := &switchMember{name: name, addr: addr}
	n.members[name] = s
	n.links.addMember(name)
	var err error
	if err = runInNamespace(n.namespacePath(name), func() error { s.dev, err = openTun("eth0"); return err }); err != nil {
		return Place{}, fmt.Errorf("add member %s: %w", name, err)
	}
	for _, args := range [][]string{
		{"-n", ns, "link", "set", "lo", "up"},
		{"-n", ns, "link", "set", "eth0", "up", "mtu", "1500"},
		{"-n", ns, "addr", "add", addr.String() + "/16", "dev", "eth0"},
	} {
		if err := runIPCommand(args...); err != nil {
			return Place{}, fmt.Errorf("add member %s: %w", name, err)
		}
	}
	n.byAddr[addr] = s
	n.wg.Go(func() { n.forwardFromMember(s) })
	place := Place{Name: name, Advertise: addr.String()}
	if len(ports) > 0 {
		place.Bind = place.Advertise
	}
	return place, nil
}

func (n *Netns) namespacePath(member string) string { return "/run/netns/" + n.namespaceName(member) }

// Command returns a command that runs a program inside a member's namespace, with the pid of the
// command. The process shares the machine's mounts, so that a disk can be unmounted for all at once.
func (n *Netns) Command(member, program string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + n.namespacePath(member), "--", program}, args...)...)
}

// Dial opens a TCP connection from inside a member's namespace. The socket stays in that namespace
// wherever it is used.
func (n *Netns) Dial(ctx context.Context, member, addr string) (net.Conn, error) {
	var conn net.Conn
	err := n.Within(member, func() error {
		var d net.Dialer
		var err error
		conn, err = d.DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// Within calls f on a thread inside a member's namespace.
func (n *Netns) Within(member string, f func() error) error {
	return runInNamespace(n.namespacePath(member), f)
}

// Rebind makes the member's NAT drop its port mappings; see Network.
func (n *Netns) Rebind(member string) (func() uint64, error) {
	s, err := n.findMember(member)
	if err != nil {
		return nil, err
	}
	return s.nat.forgetFlows(), nil
}

// Refuse makes all other members unreachable for the member: sending fails at once with an error.
// Packets to the member still arrive. Accept ends it.
func (n *Netns) Refuse(member string) error { return n.changeRejectRoutes(member, "add") }

// Accept ends Refuse.
func (n *Netns) Accept(member string) error { return n.changeRejectRoutes(member, "del") }

// changeRejectRoutes adds ("add") or deletes ("del") unreachable routes that take precedence over the
// device's route.
func (n *Netns) changeRejectRoutes(member, verb string) error {
	for _, half := range []string{"10.77.0.0/17", "10.77.128.0/17"} {
		if err := runIPCommand("-n", n.namespaceName(member), "route", verb, "unreachable", half); err != nil {
			return fmt.Errorf("refuse or accept packets of %s: %w", member, err)
		}
	}
	return nil
}

// Refused sends a packet from the member and returns the error of sending; nil: it was sent.
func (n *Netns) Refused(member string) error {
	return n.Within(member, func() error {
		conn, err := net.Dial("udp", "10.77.0.1:9")
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte{0})
		return errors.Join(err, conn.Close())
	})
}

// Move gives a member another address; packets to the old one are lost. reached returns the number of
// packets that were delivered to the new address so far.
func (n *Netns) Move(member string) (reached func() uint64, err error) {
	s, err := n.findMember(member)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	before, after := s.addr, n.nextAddress()
	s.addr = after
	delete(n.byAddr, before)
	n.byAddr[after] = s
	n.mu.Unlock()
	s.reached.Store(0)
	ns := n.namespaceName(member)
	err = errors.Join(
		runIPCommand("-n", ns, "addr", "del", before.String()+"/16", "dev", "eth0"),
		runIPCommand("-n", ns, "addr", "add", after.String()+"/16", "dev", "eth0"),
	)
	if err != nil {
		return nil, fmt.Errorf("move %s from %s to %s: %w", member, before, after, err)
	}
	return s.reached.Load, nil
}

// findMember returns the member of that name, or an error if there is none.
func (n *Netns) findMember(member string) (*switchMember, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.members[member]
	if s == nil {
		return nil, fmt.Errorf("find member %s: no such member", member)
	}
	return s, nil
}

// Close removes every namespace and waits for the goroutines. All processes in the namespaces must
// have ended.
func (n *Netns) Close() error {
	n.delayedCalls.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for m, s := range n.members {
		if s.dev != nil {
			errs = append(errs, s.dev.Close()) // its reader ends
		}
		errs = append(errs, runIPCommand("netns", "del", n.namespaceName(m)))
	}
	n.members = nil
	n.mu.Unlock()
	n.wg.Wait()
	n.mu.Lock()
	return errors.Join(errs...)
}

// runIPCommand runs the program ip and returns its output as part of the error.
func runIPCommand(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// runInNamespace calls f on a thread inside the network namespace at path.
func runInNamespace(path string, f func() error) error {
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
		// The thread cannot leave the namespace: lock it, so that it ends with its goroutine.
		runtime.LockOSThread()
		return errors.Join(err, fmt.Errorf("leave namespace %s: %w", path, back))
	}
	return err
}
