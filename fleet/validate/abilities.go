package validate

import (
	"fmt"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/fleet/template"
)

// NetworkCNI stands for every network mode cni/NAME in Abilities.Networks.
const NetworkCNI = "cni"

// Abilities are what the tasks of a driver can be given on any machine at best.
type Abilities struct {
	Networks []string // modes
	Mounts   bool     // volumes are mounted
	Names    bool     // the task has a host name and name servers of its own
	HidesEnv bool     // the environment of the task is not on the disk if it has secrets
	Address  bool     // the task has an address in a network of the driver, if its group has the host's network
}

// driverAbilities has the drivers of this release. A test of drivers/builtin compares it with the drivers' own values.
var driverAbilities = map[string]Abilities{
	"raw_exec": {Networks: allNetworks, HidesEnv: true},
	"exec":     {Networks: allNetworks, Mounts: true, Names: true, HidesEnv: true},
	"java":     {Networks: allNetworks, Mounts: true, Names: true, HidesEnv: true},
	"docker":   {Networks: allNetworks, Mounts: true, Names: true, Address: true},
	"podman":   {Networks: allNetworks, Mounts: true, Names: true, Address: true},
	"wasm":     {Networks: []string{fleet.NetworkHost, fleet.NetworkNone}, Mounts: true, HidesEnv: true},
	"qemu":     {Networks: []string{fleet.NetworkHost}, HidesEnv: true},
	"sim":      {Networks: allNetworks, Mounts: true, Names: true, HidesEnv: true},
}

// allNetworks are the network modes that exist.
var allNetworks = []string{fleet.NetworkHost, fleet.NetworkBridge, fleet.NetworkNone, NetworkCNI}

// AbilitiesOf returns what tasks of a driver can be given; false: the driver is not one of this release.
func AbilitiesOf(driver string) (Abilities, bool) {
	a, known := driverAbilities[driver]
	a.Networks = slices.Clone(a.Networks)
	return a, known
}

// refuseDriverLimits refuses what the driver of a task can do on no machine.
func refuseDriverLimits(j *fleet.Job, ps *fleet.Problems) {
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		for k := range g.Tasks {
			can, known := driverAbilities[g.Tasks[k].Driver]
			if known {
				refuseTaskLimits(g, &g.Tasks[k], can, ps, fmt.Sprintf("TaskGroups[%d]", i), k)
			}
		}
	}
}

// refuseTaskLimits refuses the networks, the volumes and the secrets in its environment that a task cannot have.
func refuseTaskLimits(g *fleet.TaskGroup, t *fleet.Task, can Abilities, ps *fleet.Problems, path string, index int) {
	mode := g.NetworkMode()
	if strings.HasPrefix(mode, NetworkCNI+"/") {
		mode = NetworkCNI
	}
	if slices.Contains(allNetworks, mode) && !slices.Contains(can.Networks, mode) {
		ps.AddHint(path+".Networks[0].Mode", "it can run in: "+strings.Join(can.Networks, ", "),
			"driver %q cannot run task %q in a network of mode %q", t.Driver, t.Name, g.NetworkMode())
	}
	if len(g.Networks) > 0 && !can.Names && (g.Networks[0].DNS != nil || g.Networks[0].Hostname != "") {
		ps.AddHint(path+".Networks[0]", "leave them out of the network block, or use a driver that runs containers",
			"driver %q cannot give task %q a hostname or dns", t.Driver, t.Name)
	}
	if len(t.VolumeMounts) > 0 && !can.Mounts {
		ps.AddHint(fmt.Sprintf("%s.Tasks[%d].VolumeMounts", path, index), "such a task sees the files of the edge: use the volume's path there, and leave out volume_mount",
			"driver %q cannot mount the volumes of task %q", t.Driver, t.Name)
	}
	at := fmt.Sprintf("%s.Tasks[%d]", path, index)
	refuseSecretConfig(t, can, ps, at)
	if !can.HidesEnv {
		refuseSecretEnv(t, ps, at)
	}
}

// refuseSecretEnv refuses secrets in the environment of a task, which is on the disk.
func refuseSecretEnv(t *fleet.Task, ps *fleet.Problems, path string) {
	refuse := func(field, hint, what string) {
		ps.AddHint(path+field, hint, "%s is not supported with the driver %s, which keeps the environment of task %q on the edge's disk", what, t.Driver, t.Name)
	}
	const readFile = "write file = true, and let the task read the file"
	if t.Identity != nil && t.Identity.Env {
		refuse(".Identity.Env", readFile, "env of an identity")
	}
	for i := range t.Identities {
		if t.Identities[i].Env {
			refuse(fmt.Sprintf(".Identities[%d].Env", i), readFile, "env of an identity")
		}
	}
	if refs := fleet.SecretReferencesIn(t.Env); len(refs) > 0 {
		refuse(".Env", "let a template write a file of the task's secrets folder, and let the task read it", fmt.Sprintf("${%.128s} in env", refs[0]))
	}
	for i := range t.Templates {
		if t.Templates[i].Envvars && template.ReadsVault(textOf(&t.Templates[i])) {
			refuse(fmt.Sprintf(".Templates[%d].Envvars", i), "render a file in the task's secrets folder, and let the task read it", "env of a template that reads a secret of Vault")
		}
	}
}

// envIsOnDisk reports whether the environment of a task is on the edge's disk, also with secrets in it.
func envIsOnDisk(t *fleet.Task) bool {
	can, known := driverAbilities[t.Driver]
	return known && !can.HidesEnv
}
