package network

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"skerry/fleet"
)

// bridgePlugins are the plugins that mode bridge needs.
var bridgePlugins = []string{"bridge", "firewall", "host-local", "portmap"}

// Attributes returns the node's attributes of networks: network.mode.MODE for each mode that works, and
// plugins.cni.version.NAME for each plugin. It logs why a mode does not work, once.
func (h *Hook) Attributes(ctx context.Context) map[string]string {
	attrs := map[string]string{}
	for name, version := range h.pluginVersions(ctx) {
		attrs["plugins.cni.version."+name] = version
	}
	noNamespaces := whyNoNamespaces()
	h.addMode(attrs, fleet.NetworkNone, noNamespaces)
	why := noNamespaces
	for _, name := range bridgePlugins {
		if _, err := h.findPlugin(name); err != nil && why == "" {
			why = err.Error()
		}
	}
	if _, err := exec.LookPath("iptables"); err != nil && why == "" {
		why = "the plugins need the program iptables, which is missing"
	}
	h.addMode(attrs, fleet.NetworkBridge, why)
	networks, err := readNetworkConfigs(h.cfg.ConfigDir)
	if err != nil {
		h.logOnce(h.cfg.ConfigDir, err.Error())
	}
	for name, c := range networks {
		why := noNamespaces
		for _, conf := range c.Plugins {
			program, err := pluginType(conf)
			if err == nil {
				_, err = h.findPlugin(program)
			}
			if err != nil && why == "" {
				why = err.Error()
			}
		}
		h.addMode(attrs, cniPrefix+name, why)
	}
	return attrs
}

// addMode adds the attribute of a mode, or logs why it does not work.
func (h *Hook) addMode(attrs map[string]string, mode, why string) {
	if why == "" {
		attrs[fleet.AttributeNetworkMode+mode] = "1"
	}
	h.logOnce(mode, why)
}

// logOnce logs why a mode does not work, when the reason changes.
func (h *Hook) logOnce(key, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.whyNoneOf[key] == why {
		return
	}
	h.whyNoneOf[key] = why
	h.cfg.Log.Info("network mode availability changed", "network_mode", key, "reason", why)
}

// findPlugin returns the path of a plugin.
func (h *Hook) findPlugin(name string) (string, error) {
	for _, dir := range filepath.SplitList(h.cfg.PluginPath) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fleet.Errorf(fleet.CodeNotFound, "the CNI plugin %s is not in %s", name, h.cfg.PluginPath).
		WithHint("install containernetworking-plugins, or set --cni-path")
}

// pluginVersions returns the version of each plugin, by name. It runs a plugin once for each version of its file.
func (h *Hook) pluginVersions(ctx context.Context) map[string]string {
	versions := map[string]string{}
	for _, dir := range filepath.SplitList(h.cfg.PluginPath) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries[:min(len(entries), 4*maxPlugins)] {
			path := filepath.Join(dir, e.Name())
			info, err := os.Stat(path)
			if _, there := versions[e.Name()]; there || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
				continue
			}
			if v := h.versionOf(ctx, path); v != "" {
				versions[e.Name()] = v
			}
		}
	}
	return versions
}

// versionOf returns the version of a plugin, or "" if the plugin prints none.
func (h *Hook) versionOf(ctx context.Context, path string) string {
	text, err := h.cfg.Programs.Ask(path, "version", func() (string, error) {
		ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, path)
		var out limitedBuffer
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
		if err := cmd.Run(); err != nil && ctx.Err() != nil {
			return "", err // asked again at the next fingerprint
		}
		return parsePluginVersion(out.String()), nil
	})
	if err != nil {
		return ""
	}
	return text
}

var (
	versionText  = regexp.MustCompile(`CNI \S+ plugin v?(\d+\.\d+\.\d+\S*)`)
	protocolText = regexp.MustCompile(`CNI protocol versions supported: ([0-9., ]+)`)
)

// parsePluginVersion parses the text that a plugin prints without a command. For a plugin that was built without a
// version, as Debian's are, it returns the newest CNI protocol version.
func parsePluginVersion(text string) string {
	if m := versionText.FindStringSubmatch(text); m != nil {
		return "v" + m[1]
	}
	m := protocolText.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	list := strings.Split(strings.Trim(m[1], ", "), ",")
	return "v" + strings.TrimSpace(list[len(list)-1])
}
