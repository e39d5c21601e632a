package placement_test

import (
	"strings"
	"testing"

	goversion "github.com/hashicorp/go-version"
	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/fleet/placement"
)

func TestConditionHolds(t *testing.T) {
	node := &fleet.Node{
		ID: "id-1", Name: "ship-1", Datacenter: "dc1", NodeClass: "vessel", NodePool: "sea",
		Attributes: map[string]string{
			"kernel.name": "linux", "ten": "10", "one": "1", "ten.five": "10.5", "os.version": "1.2.3", "word": "foobar",
			"beta": "1.7.0-beta.1", "dev": "1.3.0-beta1", "list": "a, b,c", "empty": "",
		},
		Meta: map[string]string{"rack": "r1"},
	}
	for _, c := range []struct {
		l, op, r string
		want     bool
	}{
		{"${attr.kernel.name}", "=", "linux", true},
		{"${attr.kernel.name}", "==", "linux", true},
		{"${attr.kernel.name}", "is", "windows", false},
		{"linux", "=", "${attr.kernel.name}", true},
		{"${attr.none}", "=", "${attr.none}", false},
		{"${attr.none}", "=", "linux", false},
		{"${attr.none}", "!=", "linux", true},
		{"linux", "!=", "${attr.none}", true},
		{"${attr.none}", "not", "${attr.none2}", false},
		{"${attr.kernel.name}", "!=", "windows", true},
		{"${node.unique.id}", "=", "id-1", true},
		{"${node.unique.name}", "=", "ship-1", true},
		{"${node.datacenter}", "=", "dc1", true},
		{"${node.class}", "=", "vessel", true},
		{"${node.site}", "=", "dc1", true}, // it names none
		{"${node.pool}", "=", "sea", true},
		{"${meta.rack}", "=", "r1", true},
		{"bar", "<", "foo", true},
		{"1", "<", "10", true},
		{"10", "<", "1", false},
		{"${attr.ten}", ">", "9", true},
		{"${attr.ten}", ">=", "10", true},
		{"${attr.ten}", "<=", "10", true},
		{"1.5", "<", "${attr.ten.five}", true},
		{"2", "<", "10.5", true},
		{"${attr.none}", "<", "x", false},
		{"${attr.word}", "regexp", "bar", true},
		{"${attr.word}", "regexp", "^foo", true},
		{"${attr.word}", "regexp", "^bar", false},
		{"foobar", "regexp", "${attr.word}", true},
		{"${attr.none}", "regexp", "", false},
		{"${attr.os.version}", "version", ">= 1.0, < 1.4", true},
		{"${attr.os.version}", "version", "~> 1.2", true},
		{"${attr.os.version}", "version", "> 1.2.3", false},
		{"${attr.beta}", "version", ">= 1.6.0", false},
		{"${attr.beta}", "version", ">= 1.7.0-alpha", true},
		{"1.2.3", "version", "${attr.os.version}", true},
		{"${attr.os.version}", "semver", ">= 1.0, < 1.4", true},
		{"${attr.beta}", "semver", ">= 1.7.0", false},
		{"1.7.0", "semver", ">= 1.7.0-dev", true},
		{"${attr.dev}", "semver", ">= 0.6.1", true},
		{"${attr.word}", "version", ">= 1", false},
		{"${attr.list}", "set_contains", "c,a", true},
		{"${attr.list}", "set_contains_all", "a,d", false},
		{"${attr.list}", "set_contains_any", "d, b ", true},
		{"${attr.list}", "set_contains_any", "d", false},
		{"${attr.empty}", "is_set", "", true},
		{"${attr.none}", "is_set", "", false},
		{"${attr.none}", "is_not_set", "", true},
		{"", "distinct_hosts", "true", true},
	} {
		cond, err := placement.Compile(fleet.Constraint{LTarget: c.l, Operand: c.op, RTarget: c.r})
		if c.op == "regexp" && c.r == "" {
			if err == nil {
				t.Errorf("regexp without a value compiles")
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %s %s: %v", c.l, c.op, c.r, err)
			continue
		}
		if got := cond.Holds(node); got != c.want {
			t.Errorf("%s %s %s: got %v", c.l, c.op, c.r, got)
		}
	}
}

func TestConditionRefused(t *testing.T) {
	for _, c := range []struct{ l, op, r, want string }{
		{"${attr.x}", "~~", "1", `unknown constraint operator "~~"`},
		{"${attr.x}", "", "1", `unknown constraint operator ""`},
		{"${attr.x}", "=", "", "needs a value"},
		{"", "=", "1", "needs an attribute"},
		{"${attr.x}", "regexp", "(", "malformed regular expression"},
		{"${attr.x}", "regexp", strings.Repeat("a", placement.MaxRegexpLength+1), "at most"},
		{"${attr.x}", "version", "~> foo", "malformed version"},
		{"${attr.x}", "version", ">> 1", "malformed version bound"},
		{"${attr.x}", "semver", "~> 1.2", "not an operator of semver"},
		{"${attr.x}", "semver", "1.2rc1", "malformed version"},
		{"$attr.x", "=", "1", "missing its braces"},
		{"${attr.x", "=", "1", "missing its closing brace"},
		{"${platform.x}", "=", "1", "unknown attribute"},
		{"${node.unique.ip}", "=", "1", "unknown attribute"},
		{"${attr.x}", "=", "${nope}", "unknown attribute"},
		{"", "distinct_hosts", "maybe", "true or false"},
		{"${meta.rack}", "distinct_property", "0", "1 or more"},
		{strings.Repeat("a", placement.MaxConstraintLength), "=", "1", "at most"},
	} {
		_, err := placement.Compile(fleet.Constraint{LTarget: c.l, Operand: c.op, RTarget: c.r})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s %s %.40s: %v, want %q", c.l, c.op, c.r, err, c.want)
		}
	}
	_, err := placement.Conditions([]fleet.Constraint{{LTarget: "a", Operand: "=", RTarget: "a"}, {LTarget: "a", Operand: "?", RTarget: "b"}})
	if err == nil || !strings.Contains(err.Error(), "constraint a ? b") {
		t.Errorf("the second is wrong: %v", err)
	}
}

func TestConditionPerNode(t *testing.T) {
	for target, want := range map[string]bool{
		"${node.unique.id}": true, "${attr.unique.hostname}": true, "${meta.unique.serial}": true,
		"${attr.kernel.name}": false, "${node.class}": false,
	} {
		cond, err := placement.Compile(fleet.Constraint{LTarget: target, Operand: "=", RTarget: "x"})
		if err != nil || cond.PerNode() != want {
			t.Errorf("%s: %v, %v", target, cond.PerNode(), err)
		}
	}
}

// TestVersionsLikeTheReference draws versions and bounds and asks the library that
// Nomad uses.
func TestVersionsLikeTheReference(t *testing.T) {
	number := rapid.IntRange(0, 3)
	version := rapid.Custom(func(t *rapid.T) string {
		s := ""
		for i := range rapid.IntRange(1, 4).Draw(t, "segments") {
			if i > 0 {
				s += "."
			}
			s += string(rune('0' + number.Draw(t, "segment")))
		}
		pre := rapid.SampledFrom([]string{"", "", "", "-1", "-2", "-10", "-alpha", "-alpha.1", "-beta", "-beta.2", "-beta.11"}).Draw(t, "pre")
		return rapid.SampledFrom([]string{"", "v"}).Draw(t, "v") + s + pre + rapid.SampledFrom([]string{"", "+b1"}).Draw(t, "build")
	})
	op := rapid.SampledFrom([]string{"", "=", "!=", ">", ">=", "<", "<=", "~>"})
	rapid.Check(t, func(t *rapid.T) {
		v, bound := version.Draw(t, "version"), op.Draw(t, "op")+" "+version.Draw(t, "bound")
		constraint, err := goversion.NewConstraint(bound)
		if err != nil {
			t.Skip("the reference does not know such a bound")
		}
		parsed, err := goversion.NewVersion(v)
		if err != nil {
			t.Skip("the reference does not know such a version")
		}
		cond, err := placement.Compile(fleet.Constraint{LTarget: v, Operand: fleet.OpVersion, RTarget: bound})
		if err != nil {
			t.Fatalf("%s: %v", bound, err)
		}
		if got, want := cond.Holds(&fleet.Node{}), constraint.Check(parsed); got != want {
			t.Fatalf("%s %s: got %v, the reference says %v", v, bound, got, want)
		}
	})
}

func FuzzCompile(f *testing.F) {
	f.Add("${attr.x}", "version", ">= 1.2-beta, < 2")
	f.Add("${attr.x}", "semver", "1.2.3+b")
	f.Add("${attr.x}", "regexp", "a|b")
	f.Add("a,b", "set_contains", "${meta.x}")
	f.Fuzz(func(t *testing.T, l, op, r string) {
		if cond, err := placement.Compile((fleet.Constraint{LTarget: l, Operand: op, RTarget: r})); err == nil {
			cond.Holds(&fleet.Node{Attributes: map[string]string{"x": r}, Meta: map[string]string{"x": l}})
		}
	})
}
