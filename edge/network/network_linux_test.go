package network_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/edge/network"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/internal/ownthread"
)

const (
	insideVariable = "SKERRY_TEST_INSIDE_NAMESPACE"
	hostIP         = "10.99.0.1" // of the edge, in the test's own network
)

// TestMain runs the tests as root again in new network and mount namespaces: they leave the machine as it is.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(insideVariable) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "run the tests in namespaces of their own: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// machine is an edge in the test's own network.
type machine struct {
	testing.TB
	dir, run, conf string
}

// newMachine skips the test where the plugins cannot run.
func newMachine(tb testing.TB) *machine {
	tb.Helper()
	m := &machine{TB: tb, dir: tb.TempDir(), run: tb.TempDir(), conf: tb.TempDir()}
	if os.Getenv(insideVariable) == "" {
		tb.Skip("it needs root, for network namespaces")
	}
	if attrs := m.newHook("boot-1").Attributes(tb.Context()); attrs[fleet.AttributeNetworkMode+fleet.NetworkBridge] != "1" {
		tb.Skip("it needs containernetworking-plugins and iptables: ", attrs)
	}
	m.mustRun("ip link set lo up", "ip addr replace "+hostIP+"/32 dev lo")
	tb.Cleanup(m.reboot)
	return m
}

// mustRun runs commands one after the other.
func (m *machine) mustRun(commands ...string) {
	m.Helper()
	for _, command := range commands {
		args := strings.Fields(command)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			m.Fatalf("%s: %v: %s", command, err, out)
		}
	}
}

// reboot takes the interfaces and the packet filter's rules away, as a reboot does. Namespaces stay mounted.
func (m *machine) reboot() {
	m.Helper()
	links, err := net.Interfaces()
	if err != nil {
		m.Fatal(err)
	}
	for _, l := range links {
		if l.Flags&net.FlagLoopback != 0 {
			continue
		}
		out, err := exec.Command("ip", "link", "delete", l.Name).CombinedOutput()
		if _, gone := net.InterfaceByName(l.Name); err != nil && gone == nil { // the kernel removes those of an ended namespace late
			m.Fatalf("delete the interface %s: %v: %s", l.Name, err, out)
		}
	}
	m.mustRun("iptables -t nat -F", "iptables -t nat -X", "iptables -F", "iptables -X")
}

// newHook starts an agent's hook in a boot of the machine.
func (m *machine) newHook(boot fleet.BootID, more ...namedDriver) *network.Hook {
	m.Helper()
	known := map[string]drivers.Driver{sim.Name: sim.New(sim.NewSimMachine())}
	for _, d := range more {
		known[d.name] = d
	}
	h, err := network.New(network.Config{
		Drivers: known, Dir: m.dir, BootID: boot, RunDir: m.run, ConfigDir: m.conf, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		m.Fatal(err)
	}
	return h
}

// newPreparation returns an attempt of an allocation whose group asks for a network, with one port.
func newPreparation(id fleet.AllocID, n fleet.NetworkResource, port int) *runner.Preparation {
	n.DynamicPorts = []fleet.Port{{Label: "http", To: 8080}}
	j := &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{{
		Name: "web", Networks: []fleet.NetworkResource{n}, Tasks: []fleet.Task{{Name: "serve", Driver: sim.Name}},
	}}}
	a := fleet.Alloc{ID: id, Name: "shop.web[0]", Namespace: "default", JobID: "shop", Job: j, TaskGroup: "web"}
	if port != 0 {
		a.Allotment = &fleet.AssignedResources{Ports: []fleet.AssignedPort{{Label: "http", Value: port, To: 8080, HostIP: hostIP}}}
	}
	return &runner.Preparation{
		Alloc: a, Task: &j.TaskGroups[0].Tasks[0], Config: &drivers.TaskConfig{Env: map[string]string{}},
		Node: fleet.Node{Attributes: map[string]string{fleet.AttributeIPAddress: hostIP}},
	}
}

// mustPrepare makes the network of an allocation and returns it.
func (m *machine) mustPrepare(h *network.Hook, p *runner.Preparation) drivers.Network {
	m.Helper()
	if err := h.Prepare(m.Context(), p); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		if err := h.Release(context.Background(), p.Alloc); err != nil {
			m.Error(err)
		}
	})
	return p.Config.Network
}

// inNamespace calls do on a thread in a network namespace.
func inNamespace(tb testing.TB, path string, do func() error) {
	tb.Helper()
	err := ownthread.Run(func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
	if err != nil {
		tb.Fatalf("in the namespace %s: %v", path, err)
	}
}

// mustServe answers every connection to an address in a namespace with text, until the test ends.
func mustServe(tb testing.TB, path, address, text string) {
	tb.Helper()
	var l net.Listener
	inNamespace(tb, path, func() (err error) {
		l, err = net.Listen("tcp4", address)
		return err
	})
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}()
	tb.Cleanup(func() {
		_ = l.Close()
		<-served
	})
}

// fetch reads the answer of an address.
func fetch(address string) (string, error) {
	c, err := net.DialTimeout("tcp4", address, 30*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	b, err := io.ReadAll(c)
	return string(b), err
}

// mustFetch fails the test unless an address answers with want.
func mustFetch(tb testing.TB, address, want string) {
	tb.Helper()
	if got, err := fetch(address); err != nil || got != want {
		tb.Errorf("%s answers %q, %v, want %q", address, got, err, want)
	}
}

// leases lists the addresses that are given out.
func leases(tb testing.TB, h *network.Hook) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(h.LeasesDir(), "*", "[0-9]*.[0-9]*"))
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

func TestBridge(t *testing.T) {
	m := newMachine(t)
	h := m.newHook("boot-1")
	one, two := newPreparation("a1", fleet.NetworkResource{Mode: "bridge", Hostname: "till"}, 20_001), newPreparation("a2", fleet.NetworkResource{Mode: "bridge"}, 20_002)
	var reported fleet.NetworkStatus
	one.Network = func(s fleet.NetworkStatus) error { reported = s; return nil }
	first, second := m.mustPrepare(h, one), m.mustPrepare(h, two)
	if reported != (fleet.NetworkStatus{InterfaceName: "eth0", Address: first.IP}) {
		t.Errorf("reported %+v, want %s", reported, first.IP)
	}
	if first.IP == "" || first.IP == second.IP || first.Mode != "bridge" || second.Hostname != "a2" || len(second.Hosts) != 1 || second.Hosts[0] != second.IP+" a2" || len(first.Ports) != 1 {
		t.Fatalf("networks %+v and %+v", first, second)
	}
	env := one.Config.Env
	if env["NOMAD_ALLOC_IP_http"] != first.IP || env["NOMAD_ALLOC_ADDR_http"] != first.IP+":8080" || env["NOMAD_ALLOC_INTERFACE_http"] != "eth0" {
		t.Errorf("environment %v", env)
	}
	mustServe(t, first.Namespace, ":8080", "one")
	mustServe(t, second.Namespace, ":8080", "two")
	mustFetch(t, hostIP+":20001", "one")
	mustFetch(t, hostIP+":20002", "two")
	mustFetch(t, second.IP+":8080", "two")
	inNamespace(t, first.Namespace, func() error {
		got, err := fetch(second.IP + ":8080")
		if err == nil && got != "two" {
			err = fmt.Errorf("the other allocation answers %q", got)
		}
		return err
	})
	again := newPreparation("a1", fleet.NetworkResource{Mode: "bridge"}, 20_001)
	if n := m.mustPrepare(m.newHook("boot-1"), again); n.IP != first.IP || n.Namespace != first.Namespace {
		t.Errorf("a restarted agent makes another network: %+v, want %+v", n, first)
	}
	for range 2 { // idempotent
		if err := h.Release(t.Context(), one.Alloc); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := fetch(hostIP + ":20001"); err == nil {
		t.Errorf("the port of an ended allocation answers %q", got)
	}
	mustFetch(t, hostIP+":20002", "two")
	if left := leases(t, h); network.IsNamespace(first.Namespace) || len(left) != 1 {
		t.Errorf("namespace %v, leases %q", network.IsNamespace(first.Namespace), left)
	}
}

// TestNetworkIsRebuiltAfterAReboot: neither the namespace of an earlier boot is used, nor a file on which none is
// mounted, and no address leaks.
func TestNetworkIsRebuiltAfterAReboot(t *testing.T) {
	m := newMachine(t)
	attempt := func() *runner.Preparation {
		return newPreparation("a1", fleet.NetworkResource{Mode: "bridge"}, 20_001)
	}
	first := m.mustPrepare(m.newHook("boot-1"), attempt())
	mustServe(t, first.Namespace, ":8080", "before")
	m.reboot()
	h := m.newHook("boot-2")
	second := m.mustPrepare(h, attempt())
	mustServe(t, second.Namespace, ":8080", "after") // the port is free: it is another namespace
	mustFetch(t, hostIP+":20001", "after")
	if left := leases(t, h); len(left) != 1 {
		t.Errorf("leases %q", left)
	}
	if err := unix.Unmount(second.Namespace, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	third := m.mustPrepare(h, attempt())
	mustServe(t, third.Namespace, ":8080", "again")
	mustFetch(t, hostIP+":20001", "again")
	if left := leases(t, h); !network.IsNamespace(third.Namespace) || len(left) != 1 {
		t.Errorf("namespace %v, leases %q", network.IsNamespace(third.Namespace), left)
	}
}

// TestNetworksThatADeadAgentLeft are removed when their allocation has ended, and folders of earlier boots are.
func TestNetworksThatADeadAgentLeft(t *testing.T) {
	m := newMachine(t)
	h := m.newHook("boot-1")
	gone, stays := m.mustPrepare(h, newPreparation("gone", fleet.NetworkResource{Mode: "bridge"}, 20_001)), m.mustPrepare(h, newPreparation("stays", fleet.NetworkResource{Mode: "none"}, 0))
	old := filepath.Join(m.run, "boot-of-before", "leases")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.newHook("boot-1").RemoveOrphans(t.Context(), func(id fleet.AllocID) bool { return id == "gone" }); err != nil {
		t.Fatal(err)
	}
	_, err := os.Stat(filepath.Dir(old))
	if left := leases(t, h); network.IsNamespace(gone.Namespace) || !network.IsNamespace(stays.Namespace) || len(left) != 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone %v, stays %v, leases %q, %v", network.IsNamespace(gone.Namespace), network.IsNamespace(stays.Namespace), left, err)
	}
}

func TestNone(t *testing.T) {
	m := newMachine(t)
	n := m.mustPrepare(m.newHook("boot-1"), newPreparation("a1", fleet.NetworkResource{Mode: "none"}, 0))
	mustServe(t, n.Namespace, "127.0.0.1:8080", "inside")
	inNamespace(t, n.Namespace, func() error {
		links, err := net.Interfaces()
		if err == nil && (len(links) == 0 || links[0].Name != "lo") {
			err = fmt.Errorf("interfaces %+v", links)
		}
		got, fetchErr := fetch("127.0.0.1:8080")
		if got != "inside" {
			err = errors.Join(err, fmt.Errorf("it answers %q", got), fetchErr)
		}
		return err
	})
	if n.IP != "" || len(n.Hosts) != 0 {
		t.Errorf("%+v", n)
	}
}

// TestNamedNetwork: mode cni/NAME (with the args of the cni block) is a network of the configuration folder, and one that fails leaves nothing behind.
func TestNamedNetwork(t *testing.T) {
	m := newMachine(t)
	h := m.newHook("boot-1")
	ipam := fmt.Sprintf(`"ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.98.0.0/24"}`, h.LeasesDir())
	for file, text := range map[string]string{
		"10-lan.conflist": `{"cniVersion": "0.4.0", "name": "lan", "plugins": [{"type": "ptp", ` + ipam + `, "dns": {"nameservers": ["10.98.0.1"]}}]}`,
		"20-bad.conf":     `{"cniVersion": "0.4.0", "name": "bad", "type": "ptp", "ipam": {"type": "host-local", "subnet": "nothing"}}`,
		"30-none.json":    `{"cniVersion": "0.4.0", "name": "far", "type": "no-such-plugin"}`,
		"40-broken.conf":  `{`,
	} {
		if err := os.WriteFile(filepath.Join(m.conf, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	attrs := h.Attributes(t.Context())
	if attrs["network.mode.cni/lan"] != "1" || attrs["network.mode.cni/far"] != "" || !strings.HasPrefix(attrs["plugins.cni.version.ptp"], "v") {
		t.Errorf("attributes %v", attrs)
	}
	p := newPreparation("a1", fleet.NetworkResource{Mode: "cni/lan", CNI: &fleet.CNIConfig{Args: map[string]string{"IP": "10.98.0.77", "bad": "a;b"}}}, 0)
	n := m.mustPrepare(h, p)
	if n.IP != "10.98.0.77" || n.DNS == nil || n.DNS.Servers[0] != "10.98.0.1" {
		t.Errorf("%+v", n)
	}
	mustServe(t, n.Namespace, ":8080", "lan")
	mustFetch(t, n.IP+":8080", "lan")
	for _, mode := range []string{"cni/bad", "cni/far", "cni/unknown"} {
		p := newPreparation("a2", fleet.NetworkResource{Mode: mode}, 0)
		if err := h.Prepare(t.Context(), p); !drivers.IsRecoverable(err) {
			t.Errorf("%s: %v", mode, err)
		}
		if left, _ := filepath.Glob(filepath.Join(m.run, "*", "*", "a2*")); len(left) != 0 {
			t.Errorf("%s left %q", mode, left)
		}
	}
}

// namedDriver is a driver that makes the namespaces of its groups itself.
type namedDriver struct {
	*sim.Driver
	name    string
	dir     string
	created map[fleet.AllocID]string // host names
}

func (d namedDriver) CreateNetwork(_ context.Context, id fleet.AllocID, hostname string) (string, error) {
	d.created[id] = hostname
	path := filepath.Join(d.dir, string(id))
	return path, network.CreateNamespace(path)
}

func (d namedDriver) DestroyNetwork(_ context.Context, id fleet.AllocID) error {
	delete(d.created, id)
	return network.RemoveNamespace(filepath.Join(d.dir, string(id)))
}

func TestDriverThatMakesNamespaces(t *testing.T) {
	m := newMachine(t)
	d := namedDriver{Driver: sim.New(sim.NewSimMachine()), name: "pods", dir: t.TempDir(), created: map[fleet.AllocID]string{}}
	h := m.newHook("boot-1", d)
	p := newPreparation("a1", fleet.NetworkResource{Mode: "bridge", Hostname: "till"}, 20_001)
	g := &p.Alloc.Job.TaskGroups[0]
	g.Tasks = append(g.Tasks, fleet.Task{Name: "box", Driver: "pods"})
	n := m.mustPrepare(h, p)
	if n.Namespace != filepath.Join(d.dir, "a1") || d.created["a1"] != "till" {
		t.Errorf("%+v, made %v", n, d.created)
	}
	mustServe(t, n.Namespace, ":8080", "box")
	mustFetch(t, hostIP+":20001", "box")
	if err := h.Release(t.Context(), p.Alloc); err != nil || len(d.created) != 0 {
		t.Errorf("%v, left %v", err, d.created)
	}
}
