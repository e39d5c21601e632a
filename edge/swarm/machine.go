package swarm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"sync"

	"skerry/fleet"
)

// Driver is the name of the task driver that the virtual machines have.
const Driver = "sim"

// machine is an edge.Describer of a machine that never changes.
type machine struct{ node fleet.Node }

// newMachine invents a machine with the given resources, and with as many attributes, of the same size, as a
// real one has.
func newMachine(configured fleet.Node, has fleet.Resources) machine {
	n := configured
	n.Resources = has
	n.Attributes = map[string]string{
		"cpu.arch": "arm64", "cpu.numcores": "4", "cpu.frequency": "1000", "cpu.totalcompute": "4000", "cpu.modelname": "Cortex-A72",
		"kernel.name": "linux", "kernel.arch": "arm64", "kernel.version": "6.12.25-v8", "os.name": "debian", "os.version": "13",
		"memory.totalbytes": "4294967296", "unique.hostname": n.Name,
		"unique.storage.bytestotal": "34359738368", "unique.storage.volume": "/dev/mmcblk0p2", "driver." + Driver: "1",
	}
	n.Drivers = map[string]fleet.DriverInfo{Driver: {
		Detected: true, Healthy: true, HealthDescription: "Healthy", Attributes: map[string]string{"driver." + Driver: "1"},
	}}
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s %s %s %+v", n.ID, n.Name, n.Datacenter, n.NodePool, n.NodeClass, n.Version, n.Resources))
	n.DescriptionHash = hex.EncodeToString(hash[:])
	return machine{n}
}

func (m machine) Read(context.Context) (fleet.Node, error) { return m.node, nil }
func (m machine) Run(ctx context.Context) error            { <-ctx.Done(); return nil }
func (m machine) Node() fleet.Node                         { return m.node }
func (m machine) Changed() <-chan struct{}                 { return nil }

// idleListener is a listener that accepts no connection.
type idleListener struct {
	path   net.UnixAddr
	closed chan struct{}
	once   sync.Once
}

func newIdleListener(path string) *idleListener {
	return &idleListener{path: net.UnixAddr{Name: path, Net: "unix"}, closed: make(chan struct{})}
}

func (d *idleListener) Accept() (net.Conn, error) { <-d.closed; return nil, net.ErrClosed }
func (d *idleListener) Addr() net.Addr            { return &d.path }
func (d *idleListener) Close() error              { d.once.Do(func() { close(d.closed) }); return nil }
