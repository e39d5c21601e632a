package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
)

const (
	cniPrefix     = "cni/"
	cniVersion    = "0.4.0"
	interfaceName = "eth0"
	// pluginTimeout bounds one call of a plugin. maxPluginOutput bounds its answer, and a configuration file.
	pluginTimeout   = time.Minute
	maxPluginOutput = 1 << 20
	maxPlugins      = 32
)

// portMapping is the runtimeConfig portMappings of CNI.
type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// networkConfig is a CNI network: a list of plugins.
type networkConfig struct {
	CNIVersion string            `json:"cniVersion"`
	Name       string            `json:"name"`
	Plugins    []json.RawMessage `json:"plugins"`
}

// pluginResult is the part of a plugin's result that is used.
type pluginResult struct {
	Interfaces []struct {
		Name    string `json:"name"`
		Sandbox string `json:"sandbox"`
	} `json:"interfaces"`
	IPs []struct {
		Address   string `json:"address"`
		Interface *int   `json:"interface"`
	} `json:"ips"`
	DNS struct {
		Nameservers []string `json:"nameservers"`
		Search      []string `json:"search"`
		Options     []string `json:"options"`
	} `json:"dns"`
}

// planPlugins fills in the plugins and arguments that will add the allocation to its network.
func (h *Hook) planPlugins(s *State, p *runner.Preparation, n drivers.Network, conf *fleet.CNIConfig) error {
	var c networkConfig
	switch {
	case n.Mode == fleet.NetworkNone:
		return nil
	case n.Mode == fleet.NetworkBridge:
		c = h.bridgeConfig()
	default:
		var err error
		if c, err = findNetworkConfig(h.cfg.ConfigDir, strings.TrimPrefix(n.Mode, cniPrefix)); err != nil {
			return err
		}
	}
	s.Name, s.CNI, s.Plugins = c.Name, c.CNIVersion, c.Plugins
	s.Args = pluginArgs(p, conf)
	for _, port := range n.Ports {
		ip := port.HostIP
		if ip != "" && !p.Node.HasAddress(ip) { // the address of the edge has changed since the placement
			ip = p.Node.HostAddresses(fleet.DefaultHostNetwork)[0].IP
		}
		for _, protocol := range []string{"tcp", "udp"} {
			s.Ports = append(s.Ports, portMapping{HostPort: port.Value, ContainerPort: port.Inside(), Protocol: protocol, HostIP: ip})
		}
	}
	return nil
}

// pluginArgs returns the value of CNI_ARGS.
func pluginArgs(p *runner.Preparation, conf *fleet.CNIConfig) string {
	args := []string{"IgnoreUnknown=true", "NOMAD_ALLOC_ID=" + string(p.Alloc.ID), "NOMAD_GROUP_NAME=" + p.Alloc.TaskGroup, "NOMAD_JOB_ID=" + string(p.Alloc.JobID), "NOMAD_NAMESPACE=" + p.Alloc.Namespace}
	if conf != nil {
		for k, v := range conf.Args {
			args = append(args, k+"="+p.Replace(v))
		}
	}
	args = slices.DeleteFunc(args, func(s string) bool { return strings.Contains(s, ";") || strings.Count(s, "=") != 1 }) // CNI_ARGS cannot hold them
	slices.Sort(args)
	return strings.Join(args, ";")
}

// bridgeConfig returns the network of mode bridge.
func (h *Hook) bridgeConfig() networkConfig {
	plugins := []map[string]any{
		{
			"type": "bridge", "bridge": h.cfg.Bridge, "ipMasq": true, "isGateway": true, "forceAddress": true, "hairpinMode": true,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": h.leasesDir(), "ranges": [][]map[string]string{{{"subnet": h.cfg.Subnet}}},
				"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
			},
		},
		{"type": "firewall", "backend": "iptables", "iptablesAdminChainName": "SKERRY-ADMIN"},
		{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true},
	}
	c := networkConfig{CNIVersion: cniVersion, Name: h.cfg.Bridge}
	for _, p := range plugins {
		b, err := json.Marshal(p)
		if err != nil {
			panic(fmt.Sprintf("encode the bridge network: %v", err)) // strings always encode
		}
		c.Plugins = append(c.Plugins, b)
	}
	return c
}

// findNetworkConfig reads the network with that name from a folder of CNI networks.
func findNetworkConfig(dir, name string) (networkConfig, error) {
	all, err := readNetworkConfigs(dir)
	if c, ok := all[name]; ok {
		return c, nil
	}
	return networkConfig{}, errors.Join(fleet.Errorf(fleet.CodeNotFound, "this edge has no CNI network %q", name).WithHint("describe it in a .conflist file in %s", dir), err)
}

// readNetworkConfigs reads the networks of a folder, by name. The first file of a name counts, as in CNI. The error
// names the files that are no networks.
func readNetworkConfigs(dir string) (map[string]networkConfig, error) {
	entries, err := os.ReadDir(dir) // in order of their names
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list CNI networks: %w", err)
	}
	all := map[string]networkConfig{}
	var errs []error
	for _, e := range entries {
		if !slices.Contains([]string{".conflist", ".conf", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		c, err := readNetworkConfig(filepath.Join(dir, e.Name()))
		if err != nil {
			errs = append(errs, err)
		} else if _, there := all[c.Name]; !there {
			all[c.Name] = c
		}
	}
	return all, errors.Join(errs...)
}

func readNetworkConfig(path string) (networkConfig, error) {
	f, err := os.Open(path)
	if err != nil {
		return networkConfig{}, fmt.Errorf("open CNI network: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPluginOutput+1))
	if err != nil {
		return networkConfig{}, fmt.Errorf("read CNI network %s: %w", path, err)
	}
	c, err := decodeNetworkConfig(b)
	if err != nil {
		return networkConfig{}, fmt.Errorf("read CNI network %s: %w", path, err)
	}
	return c, nil
}

// decodeNetworkConfig reads a list of plugins, or the configuration of a single one.
func decodeNetworkConfig(b []byte) (networkConfig, error) {
	if len(b) > maxPluginOutput {
		return networkConfig{}, fmt.Errorf("the file has more than %d bytes", maxPluginOutput)
	}
	var c networkConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("decode the file: %w", err)
	}
	if len(c.Plugins) == 0 {
		c.Plugins = []json.RawMessage{b}
	}
	if c.Name == "" || len(c.Plugins) > maxPlugins {
		return c, fmt.Errorf("it needs a name, and at most %d plugins", maxPlugins)
	}
	for _, p := range c.Plugins {
		if _, err := pluginType(p); err != nil {
			return c, err
		}
	}
	return c, nil
}

// pluginType returns the name of a plugin's program.
func pluginType(conf json.RawMessage) (string, error) {
	var p struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(conf, &p); err != nil {
		return "", fmt.Errorf("decode a plugin: %w", err)
	}
	if p.Type == "" || strings.ContainsAny(p.Type, `/\`) || p.Type == "." || p.Type == ".." {
		return "", fmt.Errorf("the type of a plugin, %q, is no program's name", p.Type)
	}
	return p.Type, nil
}

// addToNetwork calls the plugins for a namespace, and stores their result.
func (h *Hook) addToNetwork(ctx context.Context, s *State) error {
	for _, conf := range s.Plugins {
		result, err := h.callPlugin(ctx, "ADD", *s, conf)
		if err != nil {
			return err
		}
		s.Result = result
	}
	if len(s.Plugins) == 0 {
		return nil
	}
	var r pluginResult
	if err := json.Unmarshal(s.Result, &r); err != nil {
		return fmt.Errorf("decode the result of the CNI network %s: %w", s.Name, err)
	}
	s.IP = r.allocAddress()
	s.DNS = fleet.DNSConfig{Servers: r.DNS.Nameservers, Searches: r.DNS.Search, Options: r.DNS.Options}
	return nil
}

// allocAddress returns the address inside the namespace, preferably an IPv4 one, or "".
func (r *pluginResult) allocAddress() string {
	found := ""
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(r.Interfaces) && r.Interfaces[*i].Sandbox == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(ip.Address)
		if err != nil || prefix.Addr().IsLoopback() {
			continue
		}
		if prefix.Addr().Is4() {
			return prefix.Addr().String()
		}
		if found == "" {
			found = prefix.Addr().String()
		}
	}
	return found
}

// removeFromNetwork calls the plugins in reverse order. A plugin may be called several times.
func (h *Hook) removeFromNetwork(ctx context.Context, s State) error {
	if !isNamespace(s.Namespace) {
		s.Namespace = "" // without a namespace the plugins free only addresses and rules of the host
	}
	var errs []error
	for _, conf := range slices.Backward(s.Plugins) {
		if _, err := h.callPlugin(ctx, "DEL", s, conf); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// callPlugin calls one plugin of an allocation's network and returns its answer.
func (h *Hook) callPlugin(ctx context.Context, command string, s State, conf json.RawMessage) (json.RawMessage, error) {
	program, err := pluginType(conf)
	if err != nil {
		return nil, err
	}
	path, err := h.findPlugin(program)
	if err != nil {
		return nil, err
	}
	input, err := pluginInput(conf, s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+s.Container, "CNI_NETNS="+s.Namespace,
		"CNI_IFNAME="+interfaceName, "CNI_PATH="+h.cfg.PluginPath, "CNI_ARGS="+s.Args)
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(input), time.Second
	var stdout, stderr limitedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("call the CNI plugin %s (%s): %w: %s", program, command, err, pluginError(stdout.Bytes(), stderr.Bytes()))
	}
	if command == "ADD" && !json.Valid(stdout.Bytes()) {
		return nil, fmt.Errorf("call the CNI plugin %s: its answer is no JSON of at most %d bytes", program, maxPluginOutput)
	}
	return stdout.Bytes(), nil
}

// pluginInput adds the fields that depend on the allocation to a plugin's configuration.
func pluginInput(conf json.RawMessage, s State) ([]byte, error) {
	var c map[string]any
	if err := json.Unmarshal(conf, &c); err != nil {
		return nil, fmt.Errorf("decode a plugin: %w", err)
	}
	c["name"], c["cniVersion"] = s.Name, s.CNI
	if len(s.Result) > 0 {
		c["prevResult"] = s.Result
	}
	if can, ok := c["capabilities"].(map[string]any); ok && can["portMappings"] == true && len(s.Ports) > 0 {
		c["runtimeConfig"] = map[string]any{"portMappings": s.Ports}
	}
	delete(c, "capabilities")
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a plugin: %w", err)
	}
	return b, nil
}

// pluginError returns the text of a plugin's error, which the plugin prints as JSON.
func pluginError(stdout, stderr []byte) string {
	var e struct {
		Msg     string `json:"msg"`
		Details string `json:"details"`
	}
	if json.Unmarshal(stdout, &e) == nil && e.Msg != "" {
		return strings.TrimSpace(strings.Join([]string{e.Msg, e.Details}, " "))
	}
	text := strings.ToValidUTF8(strings.TrimSpace(string(stdout)+" "+string(stderr)), "?")
	return text[:min(len(text), 1024)]
}

// limitedBuffer keeps the first maxPluginOutput bytes that are written to it.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(maxPluginOutput-b.Len(), 0))])
	return len(p), nil
}
