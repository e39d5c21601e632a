package validate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"skerry/fleet"
)

// validateGroupParts checks what a group asks for beside its tasks, and what its tasks ask
// for of that.
func validateGroupParts(g *fleet.TaskGroup, ps *fleet.Problems, path string) {
	checkAffinities(ps, path, g.Affinities)
	checkSpreads(ps, path, g.Spreads)
	if g.ShutdownDelay != nil {
		checkDuration(ps, path+".ShutdownDelay", *g.ShutdownDelay)
	}
	if g.Scaling != nil {
		validateScalingPolicy(g.Scaling, ps, path+".Scaling", g.Count)
	}
	checkNetworks(ps, path+".Networks", g.Networks)
	for _, name := range slices.Sorted(maps.Keys(g.Volumes)) {
		validateVolume(g.Volumes[name], ps, path+".Volumes."+name, g.Update)
	}
	validateServices(g, ps, path)
	if u := g.Update; u != nil && u.ProgressDeadline > 0 {
		for i, t := range g.Tasks {
			if t.KillTimeout > u.ProgressDeadline {
				ps.Add(fmt.Sprintf("%s.Tasks[%d].KillTimeout", path, i), "%s is longer than the update's progress_deadline of %s",
					t.KillTimeout, u.ProgressDeadline)
			}
		}
	}
}

var hostname = sync.OnceValue(func() *regexp.Regexp { // compiled when it is needed, and not in each process
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)
})

func checkNetworks(ps *fleet.Problems, path string, networks []fleet.NetworkResource) {
	labels, static := map[string]bool{}, map[string]string{}
	for i, n := range networks {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case n.Mode == fleet.NetworkHost, n.Mode == fleet.NetworkBridge, n.Mode == fleet.NetworkNone, strings.HasPrefix(n.Mode, "cni/"):
		case strings.Contains(n.Mode, "${"): // told at run time
		default:
			ps.AddHint(at+".Mode", "it is host, bridge, none or cni/NAME", "unknown network mode %q", n.Mode)
		}
		if n.CNI != nil && len(n.CNI.Args) > 0 && (n.Mode == fleet.NetworkHost || n.Mode == fleet.NetworkNone) {
			ps.AddHint(at+".CNI", "write mode = \"cni/NAME\", or leave the cni block out", "a network of mode %q has no plugins to give args to", n.Mode)
		}
		if n.Hostname != "" && !strings.Contains(n.Hostname, "${") && (len(n.Hostname) > 253 || !hostname().MatchString(n.Hostname)) {
			ps.Add(at+".Hostname", "%q is not a host name", n.Hostname)
		}
		for _, list := range []struct {
			name  string
			ports []fleet.Port
		}{{"ReservedPorts", n.ReservedPorts}, {"DynamicPorts", n.DynamicPorts}} {
			for k, p := range list.ports {
				validatePort(p, ps, fmt.Sprintf("%s.%s[%d]", at, list.name, k), n.Mode, labels, static)
			}
		}
	}
}

func validatePort(p fleet.Port, ps *fleet.Problems, path, mode string, labels map[string]bool, static map[string]string) {
	switch {
	case p.Label == "":
		ps.Add(path+".Label", "a port needs a name")
	case labels[p.Label]:
		ps.Add(path+".Label", "port %q is defined twice", p.Label)
	}
	labels[p.Label] = true
	if p.Value < 0 || p.Value > 65535 {
		ps.Add(path+".Value", "must be between 0 and 65535, not %d", p.Value)
	}
	if p.To < -1 || p.To > 65535 {
		ps.Add(path+".To", "must be between -1 and 65535, not %d", p.To)
	}
	if p.IgnoreCollision {
		if mode != fleet.NetworkHost {
			ps.Add(path+".IgnoreCollision", "collisions of port %q can be ignored only in mode host, not in %q", p.Label, mode)
		}
		return
	}
	if p.Value == 0 {
		return
	}
	key := p.HostNetwork + ":" + strconv.Itoa(p.Value)
	if first, taken := static[key]; taken {
		ps.Add(path+".Value", "port %d is already used by port %q", p.Value, first)
	} else {
		static[key] = p.Label
	}
}

func validateVolume(v fleet.VolumeRequest, ps *fleet.Problems, path string, u *fleet.Update) {
	if v.Type != fleet.VolumeHost && v.Type != fleet.VolumeCSI {
		return // Nomad's clients leave it out; a task that mounts it is refused
	}
	if v.Source == "" {
		ps.Add(path+".Source", "volume %q needs a source", v.Name)
	}
	if v.Type == fleet.VolumeCSI {
		if v.AttachmentMode == "" {
			ps.Add(path+".AttachmentMode", "volume %q needs an attachment_mode", v.Name)
		}
		if v.AccessMode == "" {
			ps.Add(path+".AccessMode", "volume %q needs an access_mode", v.Name)
		}
	}
	if v.Type == fleet.VolumeHost {
		validateHostVolume(v, ps, path)
	}
	if v.PerAlloc && u != nil && u.Canary > 0 {
		ps.Add(path+".PerAlloc", "volume %q cannot be per_alloc while there are canaries", v.Name)
	}
}

// validateHostVolume checks the parts of a volume that mean something else for volumes of other types.
func validateHostVolume(v fleet.VolumeRequest, ps *fleet.Problems, path string) {
	checkOneOf(ps, path+".AccessMode", "it is single-node-reader-only, single-node-writer, single-node-single-writer or single-node-multi-writer",
		"unknown access_mode of a host volume", v.AccessMode, "", fleet.AccessReader, fleet.AccessWriter, fleet.AccessSingleWriter, fleet.AccessMultiWriter)
	if v.AccessMode == fleet.AccessReader && !v.ReadOnly {
		ps.Add(path+".AccessMode", "volume %q with access_mode %s needs read_only = true", v.Name, v.AccessMode)
	}
	if v.AttachmentMode != "" && v.AttachmentMode != fleet.AttachFileSystem {
		ps.AddHint(path+".AttachmentMode", "it is file-system", "host volume %q is a folder: it has no attachment_mode %s", v.Name, v.AttachmentMode)
	}
}
