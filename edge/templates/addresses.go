package templates

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-sockaddr"
	sockaddrtemplate "github.com/hashicorp/go-sockaddr/template"

	"skerry/fleet"
)

// kernelRoutes lists the routes of the machine.
const kernelRoutes = "/proc/net/route"

// addressFunctions returns the addresses of the machine and the functions of go-sockaddr. Those that need the interface
// of the default route read it from the kernel: go-sockaddr starts a program for each comparison.
func addressFunctions(routes string) (any, map[string]any, error) {
	all, err := sockaddr.GetAllInterfaces()
	if err != nil {
		return nil, nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	m := machineAddresses{all: all, routes: cmp.Or(routes, kernelRoutes)}
	functions := map[string]any{}
	for _, group := range []map[string]any{
		sockaddrtemplate.SourceFuncs, sockaddrtemplate.SortFuncs, sockaddrtemplate.FilterFuncs, sockaddrtemplate.HelperFuncs,
	} {
		maps.Copy(functions, group)
	}
	maps.Copy(functions, map[string]any{
		"GetDefaultInterfaces": m.ofDefaultRoute,
		"GetPrivateInterfaces": func() (sockaddr.IfAddrs, error) { return m.listForwardable(true) },
		"GetPublicInterfaces":  func() (sockaddr.IfAddrs, error) { return m.listForwardable(false) },
		"GetPrivateIP":         func() (string, error) { return firstAddress(m.listForwardable(true)) },
		"GetPublicIP":          func() (string, error) { return firstAddress(m.listForwardable(false)) },
		"sort": func(by string, list sockaddr.IfAddrs) (sockaddr.IfAddrs, error) {
			if strings.Contains(strings.ToLower(by), "default") {
				return nil, fleet.Errorf(fleet.CodeInvalid, "sockaddr: sort by %q is not supported", by).WithHint("GetDefaultInterfaces has the addresses of the default route")
			}
			return sockaddr.SortIfBy(by, list)
		},
	})
	return all, functions, nil
}

// machineAddresses are the addresses of all interfaces.
type machineAddresses struct {
	all    sockaddr.IfAddrs
	routes string
}

// ofDefaultRoute returns the addresses of the interface that has the default route.
func (m machineAddresses) ofDefaultRoute() (sockaddr.IfAddrs, error) {
	name, err := defaultInterface(m.routes)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(m.all), func(a sockaddr.IfAddr) bool { return a.Name != name }), nil
}

// listForwardable returns the addresses by which other machines reach this one, private or public ones, those of the default
// route first.
func (m machineAddresses) listForwardable(private bool) (sockaddr.IfAddrs, error) {
	list, _ := sockaddr.FilterIfByType(m.all, sockaddr.TypeIP)
	for _, flag := range []string{"forwardable", "up"} {
		var err error
		if list, _, err = sockaddr.IfByFlag(flag, list); err != nil {
			return nil, err
		}
	}
	within, without, err := sockaddr.IfByRFC("6890", list)
	if err != nil {
		return nil, err
	}
	if list = within; !private {
		list = without
	}
	name, err := defaultInterface(m.routes)
	if err != nil {
		name = ""
	}
	byDefault := func(a, b *sockaddr.IfAddr) int {
		switch {
		case (a.Name == name) == (b.Name == name):
			return 0
		case a.Name == name:
			return -1
		}
		return 1
	}
	sockaddr.OrderedIfAddrBy(byDefault, sockaddr.AscIfType, sockaddr.AscIfNetworkSize).Sort(list)
	return list, nil
}

// firstAddress returns the first of some addresses; "" if there is none.
func firstAddress(list sockaddr.IfAddrs, err error) (string, error) {
	if err != nil || len(list) == 0 {
		return "", err
	}
	return sockaddr.IfAttr("address", list[0])
}

// errNoDefaultRoute is the error of a machine without a default route: it may get one.
var errNoDefaultRoute = errors.New("this machine has no default route")

// defaultInterface returns the interface of the default route with the lowest metric.
func defaultInterface(routes string) (name string, err error) {
	f, err := os.Open(routes)
	if err != nil {
		return "", fmt.Errorf("read the routes of this machine: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lowest := uint64(0)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // interface, destination, gateway, flags, references, uses, metric, mask
		if len(fields) < 8 || fields[1] != "00000000" || fields[7] != "00000000" {
			continue
		}
		metric, err := strconv.ParseUint(fields[6], 10, 64)
		if err == nil && (name == "" || metric < lowest) {
			name, lowest = fields[0], metric
		}
	}
	if name == "" {
		return "", errNoDefaultRoute
	}
	return name, nil
}
