package api

import (
	"cmp"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
)

// checkJob checks whether the token of a request may have a job: in its namespace, in its node pool, and with the host
// volumes that it mounts.
func checkJob(v *state.View, g *grant, job *fleet.Job) error {
	if err := g.checkNamed(acl.KindNamespace, cmp.Or(job.Namespace, fleet.DefaultNamespace)); err != nil {
		return err
	}
	if err := checkPool(v, g.rules, cmp.Or(job.NodePool, fleet.DefaultPool)); err != nil {
		return err
	}
	for i := range job.TaskGroups {
		if err := checkMounts(g.rules, &job.TaskGroups[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkPool checks whether a token may have jobs and volumes in a pool. Nomad has no such check, so that no rule is
// needed. A rule that denies a pool keeps the token's jobs out of it, and out of the pool of all nodes.
func checkPool(v *state.View, rules *acl.ACL, pool string) error {
	needed := acl.Requirement{Kind: acl.KindNodePool, Name: pool, Capability: acl.Write}
	denied := rules.Denies(acl.KindNodePool, pool)
	if pool == fleet.AllPools && !rules.Allows(needed) {
		for p := range v.Pools() {
			denied = denied || rules.Denies(acl.KindNodePool, p.Name)
		}
	}
	if denied {
		return refusal(rules, needed)
	}
	return nil
}

// checkMounts checks whether a token may mount the host volumes of a group. A volume that is mounted so that its mounts
// propagate to the machine is written, whatever it says.
func checkMounts(rules *acl.ACL, g *fleet.TaskGroup) error {
	writable := map[string]bool{}
	for _, t := range g.Tasks {
		for _, m := range t.VolumeMounts {
			writable[m.Volume] = writable[m.Volume] || m.PropagationMode == "bidirectional"
		}
	}
	for name, vol := range g.Volumes {
		if vol.Type != fleet.VolumeHost {
			continue // no volume of another type is mounted
		}
		needed := acl.Requirement{Kind: acl.KindHostVolume, Name: vol.Source, Capability: acl.MountReadWrite}
		readOnly := needed
		readOnly.Capability = acl.MountReadOnly
		switch {
		case rules.Allows(needed):
		case !vol.ReadOnly || writable[name]:
			return refusal(rules, needed)
		case !rules.Allows(readOnly):
			return refusal(rules, readOnly)
		}
	}
	return nil
}
