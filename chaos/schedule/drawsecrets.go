package schedule

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// secretStream separates the random numbers of addSecrets from the others, as windowStream does.
const secretStream = 0x5ec2

// Maximum numbers of drawn faults in an hour: of each kind on keys, CAs and tokens, and of revoked edges.
const changesPerHour, revocationsPerHour = 3, 1

// addSecrets turns access control on, has some jobs read variables, which change meanwhile, and adds faults of the kinds
// in Shape.secrets that clash with no other fault, half of them while another fault lasts.
func (d *drawer) addSecrets() {
	d.rng = rand.New(rand.NewPCG(d.s.Seed, secretStream))
	if len(d.s.Jobs) == 0 {
		return
	}
	d.s.Access, d.s.Secrets = true, 4+d.rng.IntN(5)
	for i := range d.s.Jobs {
		if j := &d.s.Jobs[i]; j.HCL == "" && d.drawBool(40) {
			j.Secret = true
		}
	}
	taken := newOccupancy(d.s.Topology, d.s.Length)
	for _, f := range d.s.Faults {
		if taken.reserveFault(f) != nil {
			return
		}
	}
	others := slices.Clone(d.s.Faults)
	for _, kind := range d.shape.secrets {
		most := changesPerHour
		if kind == NodeRevoke {
			most = revocationsPerHour
		}
		for range min(d.rng.IntN(int(float64(most)*max(1, d.s.Length.Hours()))+1), MaxFaults-1-len(d.s.Faults)) {
			if f, ok := d.drawBeside(taken, kind, others); ok && !d.isStrandedByRestore(f) {
				d.s.Faults = append(d.s.Faults, f)
			}
		}
	}
	slices.SortStableFunc(d.s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// isStrandedByRestore reports whether a restored copy of the hubs may have the node of a revoked edge, whose machine has no
// identity any more, or lack the CA of the edges' certificates: nobody could get in without a person.
func (d *drawer) isStrandedByRestore(f Fault) bool {
	over := f.End(d.s.Length) + clusterRecovery
	switch f.Kind {
	case NodeRevoke:
	case CARotate:
		over = f.At + RotationPatience
	default:
		return false
	}
	return slices.ContainsFunc(d.s.Faults, func(r Fault) bool {
		return r.Kind == Restore && r.At-r.Params.Age-time.Minute <= over && f.At <= r.At+clusterRecovery
	})
}
