package placement_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/placement"
)

// TestOperators holds every operator against the pairs of values that the behaviour
// table has for it. An attribute ${attr.nil} is one that the node does not have.
func TestOperators(t *testing.T) {
	const absent = "${attr.nil}"
	for _, tc := range []struct {
		row, l, op, r string
		want          bool
	}{
		// B36 and the trap I10: two that are missing are neither equal nor unequal.
		{"B36", "foo", "=", "foo", true},
		{"B36", "foo", "==", "bar", false},
		{"B36", "foo", "is", "foo", true},
		{"B36", absent, "=", "foo", false},
		{"B36", "foo", "=", absent, false},
		{"B36, I10", absent, "=", absent, false},
		{"B37", "foo", "!=", "bar", true},
		{"B37", "foo", "not", "bar", true},
		{"B37", "foo", "!=", "foo", false},
		{"B37", absent, "!=", "foo", true},
		{"B37", absent, "not", "foo", true},
		{"B37", "foo", "!=", absent, true},
		{"B37", "foo", "not", absent, true},
		{"B37, I10", absent, "!=", absent, false},
		{"B37, I10", absent, "not", absent, false},

		// B38 and I11: by value only where both are numbers.
		{"B38", "bar", "<", "foo", true},
		{"B38", "foo", "<=", "foo", true},
		{"B38", "foo", ">", "bar", true},
		{"B38", "1", "<", "10", true},
		{"B38", "10", "<", "1", false},
		{"B38", "9", "<", "10", true}, // by letters it is not
		{"B38", "1.5", "<", "10.5", true},
		{"B38", "10.5", ">=", "10.5", true},
		{"B38", absent, "<", "x", false},
		{"B38", "x", "<", absent, false},
		{"B38", absent, ">", "x", false},
		{"B38, I11", "9", "<", "10a", false},
		{"B38, I11", "v9", "<", "v10", false},

		// B39, B40 and I12: a pre-release and the bounds of finished ones.
		{"B39, I12", "1.7.0-beta.1", "version", ">= 1.6.0", false},
		{"B39, I12", "1.7.0-beta.1", "version", ">= 1.7.0-alpha", true},
		{"B39", "1.2.3", "version", "~> 1.2", true},
		{"B40", "1.2.3", "semver", ">= 1.0, < 1.4", true},
		{"B40", "1.4.0", "semver", ">= 1.0, < 1.4", false},
		{"B40", "1.7.0-beta.1", "semver", ">= 1.7.0", false},
		{"B40", "1.7.0", "semver", ">= 1.7.0-dev", true},
		{"B40, I12", "1.3.0-beta1", "semver", ">= 0.6.1", true},
		{"B39, I12", "1.3.0-beta1", "version", ">= 0.6.1", false},
		{"B40, I12", "1.2.3", "semver", "${meta.bound}", false}, // "~> 1.2"

		{"B41", "foobar", "regexp", "bar", true},
		{"B41", "foobar", "regexp", "^foo", true},
		{"B41", "foobar", "regexp", "^bar", false},
		{"B41", absent, "regexp", "f", false},

		{"B42", "a,b,c", "set_contains", "a, c", true},
		{"B42", "a,b", "set_contains_all", "a,c", false},
		{"B43", "a,b", "set_contains_any", "a ", true},
		{"B43", "b", "set_contains_any", "a", false},
		{"B43", "a,b", "set_contains_any", "x, b", true},
		{"B43", absent, "set_contains_any", "a", false},

		{"B44", "${attr.there}", "is_set", "", true},
		{"B44", absent, "is_set", "", false},
		{"B44", absent, "is_not_set", "", true},
		{"B44", "${attr.there}", "is_not_set", "", false},
	} {
		t.Run(strings.Join([]string{tc.row, tc.l, tc.op, tc.r}, " "), func(t *testing.T) {
			// A value of a job file and one of a node are compared alike.
			node := &fleet.Node{Attributes: map[string]string{"there": "", "l": tc.l}, Meta: map[string]string{"bound": "~> 1.2"}}
			targets := []string{tc.l}
			if !strings.HasPrefix(tc.l, "${") {
				targets = append(targets, "${attr.l}")
			}
			for _, l := range targets {
				cond, err := placement.Compile(fleet.Constraint{LTarget: l, Operand: tc.op, RTarget: tc.r})
				if err != nil {
					t.Fatal(err)
				}
				if got := cond.Holds(node); got != tc.want {
					t.Errorf("%s %s %s: %v", l, tc.op, tc.r, got)
				}
			}
		})
	}
	// B40: in a job file the operator that semver does not know is said at once.
	_, err := placement.Compile(fleet.Constraint{LTarget: "1.2.3", Operand: "semver", RTarget: "~> 1.2"})
	if err == nil || !strings.Contains(err.Error(), "semver") {
		t.Errorf("B40 ~> with semver: %v", err)
	}
}
