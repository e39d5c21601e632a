package placement

import (
	"fmt"

	"skerry/fleet"
)

// Problems returns what is wrong with the constraints, affinities and spreads of a job. Package
// validate checks the rest of them.
func Problems(j *fleet.Job) fleet.Problems {
	var ps fleet.Problems
	addProblems(&ps, "", j.Constraints, j.Affinities, j.Spreads)
	for i, g := range j.TaskGroups {
		path := fmt.Sprintf("TaskGroups[%d].", i)
		addProblems(&ps, path, g.Constraints, g.Affinities, g.Spreads)
		for k, t := range g.Tasks {
			addProblems(&ps, fmt.Sprintf("%sTasks[%d].", path, k), t.Constraints, t.Affinities, nil)
		}
	}
	return ps
}

// CheckVolume returns what is wrong with the constraints of a dynamic host volume. Package admission checks the rest of it.
func CheckVolume(v *fleet.Volume) error {
	if _, err := Conditions(v.Constraints); err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "volume %q: %v", v.Name, err)
	}
	return nil
}

// addProblems checks what stands below one path.
func addProblems(ps *fleet.Problems, path string, constraints []fleet.Constraint, affinities []fleet.Affinity, spreads []fleet.Spread) {
	for i, c := range constraints {
		if _, err := Compile(c); err != nil {
			ps.Add(fmt.Sprintf("%sConstraints[%d]", path, i), "%s", err)
		}
	}
	for i, a := range affinities {
		if a.Operand == fleet.OpDistinctHosts || a.Operand == fleet.OpDistinctProp {
			continue // validate refuses it
		}
		if _, err := Compile(a.Constraint()); err != nil {
			ps.Add(fmt.Sprintf("%sAffinities[%d]", path, i), "%s", err)
		}
	}
	for i, s := range spreads {
		if err := checkTarget(s.Attribute); err != nil {
			ps.Add(fmt.Sprintf("%sSpreads[%d].Attribute", path, i), "%s", err)
		}
	}
}
