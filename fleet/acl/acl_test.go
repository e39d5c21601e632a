package acl_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/aclpolicy"
)

func mustParse(tb testing.TB, rules string) *acl.Policy {
	tb.Helper()
	p, err := aclpolicy.Parse(rules)
	if err != nil {
		tb.Fatalf("parse %s: %v", rules, err)
	}
	return p
}

func inNamespace(name string, c acl.Capability) acl.Requirement {
	return acl.Requirement{Kind: acl.KindNamespace, Name: name, Capability: c}
}

func TestPrecedence(t *testing.T) {
	variable := func(namespace, path string, c acl.Capability) acl.Requirement {
		return acl.Requirement{Kind: acl.KindVariables, Name: namespace, Path: path, Capability: c}
	}
	of := func(kind acl.Kind, name string, c acl.Capability) acl.Requirement {
		return acl.Requirement{Kind: kind, Name: name, Capability: c}
	}
	tests := map[string]struct {
		policies []string
		allowed  []acl.Requirement
		refused  []acl.Requirement
	}{
		"nothing is allowed without a policy": {nil, nil, []acl.Requirement{
			inNamespace("default", acl.ListJobs), inNamespace("*", acl.ListJobs), of(acl.KindNode, "", acl.Read), of(acl.KindManagement, "", "")}},
		"read of a namespace": {[]string{`namespace "default" { policy = "read" }`},
			[]acl.Requirement{inNamespace("default", acl.ListJobs), inNamespace("default", acl.ParseJob), inNamespace("default", acl.ReadJob),
				inNamespace("default", acl.HostVolumeRead), inNamespace("default", acl.ReadJobScaling), inNamespace("*", acl.ReadJob)},
			[]acl.Requirement{inNamespace("default", acl.ReadLogs), inNamespace("default", acl.SubmitJob), inNamespace("other", acl.ReadJob),
				inNamespace("default", acl.Deny), inNamespace("default", "no-such"), inNamespace("*", acl.SubmitJob)}},
		"write of a namespace": {[]string{`namespace "default" { policy = "write" }`},
			[]acl.Requirement{inNamespace("default", acl.SubmitJob), inNamespace("default", acl.ReadLogs), inNamespace("default", acl.AllocExec),
				inNamespace("default", acl.ScaleJob), inNamespace("default", acl.HostVolumeDelete), inNamespace("default", acl.DispatchJob)},
			[]acl.Requirement{inNamespace("default", acl.AllocNodeExec), inNamespace("default", acl.SentinelOverride),
				inNamespace("default", acl.CSIRegisterPlugin), variable("default", "a", acl.Read), of(acl.KindManagement, "", "")}},
		"scale of a namespace": {[]string{`namespace "default" { policy = "scale" }`},
			[]acl.Requirement{inNamespace("default", acl.ScaleJob), inNamespace("default", acl.ReadJobScaling), inNamespace("default", acl.ListScalingPolicies)},
			[]acl.Requirement{inNamespace("default", acl.ReadJob), inNamespace("default", acl.SubmitJob)}},
		"policy and capabilities are united": {[]string{`namespace "default" {
				policy       = "read"
				capabilities = ["alloc-node-exec"]
			}`},
			[]acl.Requirement{inNamespace("default", acl.ReadJob), inNamespace("default", acl.AllocNodeExec)}, nil},
		"two policies are united": {[]string{`namespace "default" { policy = "read" }`, `namespace "default" { capabilities = ["read-logs"] }`},
			[]acl.Requirement{inNamespace("default", acl.ReadJob), inNamespace("default", acl.ReadLogs)}, nil},
		"deny wins before": {[]string{`namespace "default" { policy = "deny" }`, `namespace "default" { policy = "write" }`},
			nil, []acl.Requirement{inNamespace("default", acl.ReadJob), inNamespace("*", acl.ReadJob)}},
		"deny wins after": {[]string{`namespace "default" { policy = "write" }`, `namespace "default" { capabilities = ["deny", "read-job"] }`},
			nil, []acl.Requirement{inNamespace("default", acl.ReadJob)}},
		"a name comes before globs": {[]string{`namespace "*" { policy = "write" }`, `namespace "prod" { policy = "read" }`},
			[]acl.Requirement{inNamespace("prod", acl.ReadJob), inNamespace("dev", acl.SubmitJob)},
			[]acl.Requirement{inNamespace("prod", acl.SubmitJob)}},
		"a name comes before a glob that denies": {[]string{`namespace "*" { policy = "deny" }`, `namespace "prod" { policy = "read" }`},
			[]acl.Requirement{inNamespace("prod", acl.ReadJob)}, []acl.Requirement{inNamespace("dev", acl.ReadJob)}},
		"the closest glob decides alone": {[]string{`namespace "*" { policy = "write" }`, `namespace "prod-*" { policy = "read" }`, `namespace "prod-web-*" { policy = "deny" }`},
			[]acl.Requirement{inNamespace("prod-api", acl.ReadJob), inNamespace("dev", acl.SubmitJob)},
			[]acl.Requirement{inNamespace("prod-api", acl.SubmitJob), inNamespace("prod-web-1", acl.ReadJob)}},
		"of two globs as close, the later in the alphabet": {[]string{`namespace "*-a" { policy = "write" }`, `namespace "b-*" { policy = "read" }`},
			[]acl.Requirement{inNamespace("b-a", acl.ReadJob)}, []acl.Requirement{inNamespace("b-a", acl.SubmitJob)}},
		"stars do not count as characters": {[]string{`namespace "**p*r*o*d**" { policy = "read" }`, `namespace "prod*" { policy = "write" }`},
			[]acl.Requirement{inNamespace("prod", acl.SubmitJob)}, nil},
		"an empty block of a namespace hides a glob": {[]string{`namespace "*" { policy = "write" }`, `namespace "prod" {}`},
			nil, []acl.Requirement{inNamespace("prod", acl.ReadJob)}},
		"variables": {[]string{`namespace "prod" {
				variables {
					path "project/*" { capabilities = ["read"] }
					path "project/secret" { capabilities = ["deny"] }
					path "project/mine" { capabilities = ["write", "destroy"] }
				}
			}`},
			[]acl.Requirement{variable("prod", "project/a", acl.Read), variable("prod", "project/a", acl.List), variable("prod", "project/mine", acl.Destroy)},
			[]acl.Requirement{variable("prod", "project/a", acl.Write), variable("prod", "project/secret", acl.Read), variable("prod", "project/mine", acl.Read),
				variable("dev", "project/a", acl.Read), variable("prod", "other", acl.Read), inNamespace("prod", acl.ListJobs)}},
		"variables of a glob of namespaces": {[]string{`namespace "prod-*" {
				policy = "deny"
				variables { path "*" { capabilities = ["list"] } }
			}`},
			[]acl.Requirement{variable("prod-1", "a/b", acl.List)},
			[]acl.Requirement{variable("prod-1", "a/b", acl.Read), variable("dev", "prod-1/a", acl.List), inNamespace("prod-1", acl.ReadJob)}},
		"kinds without names": {[]string{"node { policy = \"read\" }\nagent { policy = \"write\" }\noperator {\n policy = \"read\"\n capabilities = [\"snapshot-save\"]\n}\nquota { policy = \"deny\" }\nplugin { policy = \"list\" }"},
			[]acl.Requirement{of(acl.KindNode, "", acl.Read), of(acl.KindAgent, "", acl.Read), of(acl.KindAgent, "", acl.Write),
				of(acl.KindOperator, "", acl.Read), of(acl.KindOperator, "", acl.SnapshotSave), of(acl.KindPlugin, "", acl.List)},
			[]acl.Requirement{of(acl.KindNode, "", acl.Write), of(acl.KindOperator, "", acl.Write), of(acl.KindQuota, "", acl.Read), of(acl.KindPlugin, "", acl.Read)}},
		"write of the operator is no snapshot": {[]string{`operator { policy = "write" }`},
			[]acl.Requirement{of(acl.KindOperator, "", acl.Write)}, []acl.Requirement{of(acl.KindOperator, "", acl.SnapshotSave)}},
		"the most that several policies give to nodes": {[]string{`node { policy = "read" }`, `node { policy = "write" }`},
			[]acl.Requirement{of(acl.KindNode, "", acl.Write)}, nil},
		"deny of nodes": {[]string{`node { policy = "write" }`, `node { policy = "deny" }`, `site "*" { policy = "write" }`},
			nil, []acl.Requirement{of(acl.KindNode, "", acl.Read), of(acl.KindSite, "shop-1", acl.Read)}},
		"node pools and host volumes": {[]string{"node_pool \"gpu-*\" { policy = \"write\" }\nnode_pool \"gpu-9\" { capabilities = [\"read\"] }\nhost_volume \"ssd\" { policy = \"read\" }\nhost_volume \"*\" { policy = \"deny\" }"},
			[]acl.Requirement{of(acl.KindNodePool, "gpu-1", acl.Delete), of(acl.KindNodePool, "gpu-9", acl.Read), of(acl.KindHostVolume, "ssd", acl.MountReadOnly)},
			[]acl.Requirement{of(acl.KindNodePool, "gpu-9", acl.Write), of(acl.KindHostVolume, "ssd", acl.MountReadWrite), of(acl.KindHostVolume, "hdd", acl.MountReadOnly)}},
		"sites add to nodes": {[]string{"node { policy = \"read\" }\nsite \"shop-*\" { policy = \"write\" }\nsite \"shop-9\" { policy = \"deny\" }"},
			[]acl.Requirement{of(acl.KindSite, "shop-1", acl.Write), of(acl.KindSite, "ship-1", acl.Read)},
			[]acl.Requirement{of(acl.KindSite, "ship-1", acl.Write), of(acl.KindSite, "shop-9", acl.Read), of(acl.KindNode, "", acl.Write)}},
		"JSON": {[]string{`{"namespace": {"default": {"policy": "read", "variables": {"path": {"a/*": {"capabilities": ["read"]}}}}, "x-*": {"capabilities": ["submit-job"]}}, "node": {"policy": "write"}}`},
			[]acl.Requirement{inNamespace("default", acl.ReadJob), inNamespace("x-1", acl.SubmitJob), of(acl.KindNode, "", acl.Write), variable("default", "a/b", acl.Read)}, nil},
		"all in one line, as HCL 1 takes it": {[]string{`namespace "a" { policy = "read" capabilities = ["read-logs",], variables { path "x" { capabilities = ["read"] } path "y" {capabilities=["list"]} } } node { policy = "read" }`},
			[]acl.Requirement{inNamespace("a", acl.ReadJob), inNamespace("a", acl.ReadLogs), variable("a", "x", acl.Read), variable("a", "y", acl.List), of(acl.KindNode, "", acl.Read)},
			[]acl.Requirement{variable("a", "y", acl.Read)}},
		"what capabilities of host volumes bring with them": {[]string{`namespace "a" { capabilities = ["host-volume-register"] }`},
			[]acl.Requirement{inNamespace("a", acl.HostVolumeCreate), inNamespace("a", acl.HostVolumeRead)},
			[]acl.Requirement{inNamespace("a", acl.HostVolumeDelete), inNamespace("a", acl.HostVolumeWrite)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var policies []*acl.Policy
			for _, rules := range test.policies {
				policies = append(policies, mustParse(t, rules))
			}
			for _, list := range [][]*acl.Policy{policies, reversed(policies)} {
				checkACL(t, acl.New(list...), test.allowed, test.refused)
			}
		})
	}
}

func reversed(list []*acl.Policy) []*acl.Policy {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func checkACL(t *testing.T, a *acl.ACL, allowed, refused []acl.Requirement) {
	t.Helper()
	for i, r := range slices.Concat(allowed, refused) {
		want := i < len(allowed)
		if a.Allows(r) != want {
			t.Errorf("%s: allowed is %v", r, !want)
		}
		if e := a.Explain(r); e.Allowed != want || e.Reason == "" {
			t.Errorf("%s: explained as %+v", r, e)
		}
		if !acl.Management.Allows(r) {
			t.Errorf("%s: refused to a management token", r)
		}
		if rule := r.Rule(); want && r.Name != "*" && !acl.New(mustParse(t, rule)).Allows(r) {
			t.Errorf("%s: the suggested rule %s does not allow it", r, rule)
		}
	}
}

func TestMatchGlob(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "a", true}, {"a*a", "a", false},
		{"a*a", "aa", true}, {"*b*", "abc", true}, {"*b*", "ac", false}, {"a*b*c", "a1b2c", true}, {"a*b*c", "acb", false}, {"**", "x", true},
		{"*-prod", "web-prod", true}, {"*-prod", "web-prod-2", false}, {"a*bc*c", "abc", false}, {"a*bc*c", "abcc", true},
	} {
		if fleet.MatchGlob(test.pattern, test.name) != test.want {
			t.Errorf("%q matches %q: not %v", test.pattern, test.name, test.want)
		}
	}
}

func TestAllowsAnyAndSome(t *testing.T) {
	a := acl.New(mustParse(t, "namespace \"a-*\" {\n policy = \"read\"\n variables { path \"p/*\" { capabilities = [\"list\"] } }\n}\nnamespace \"a-9\" { policy = \"deny\" }\nsite \"shop-*\" { policy = \"read\" }"))
	for _, test := range []struct {
		got, want bool
		what      string
	}{
		{a.AllowsAny(acl.KindNamespace, acl.ReadJob), true, "any namespace to read"},
		{a.AllowsAny(acl.KindNamespace, acl.SubmitJob), false, "any namespace to submit"},
		{a.AllowsAny(acl.KindSite, acl.Read), true, "any site"},
		{a.AllowsAny(acl.KindSite, acl.Write), false, "any site to write"},
		{a.AllowsAny(acl.KindNode, acl.Read), false, "nodes"},
		{a.AllowsAny(acl.KindVariables, acl.List), true, "any variable"},
		{a.AllowsSome(acl.KindNamespace, "a-1"), true, "know a-1"},
		{a.AllowsSome(acl.KindNamespace, "a-9"), false, "know a-9"},
		{a.AllowsSome(acl.KindNamespace, "b"), false, "know b"},
		{a.AllowsSome(acl.KindVariables, "a-1"), true, "know variables of a-1"},
		{a.AllowsSome(acl.KindVariables, "b"), false, "know variables of b"},
		{a.AllowsSome(acl.KindSite, "shop-1"), true, "know shop-1"},
		{a.AllowsSome(acl.KindSite, "ship-1"), false, "know ship-1"},
		{acl.Management.AllowsSome(acl.KindSite, "x"), true, "management"},
		{acl.New().AllowsAny(acl.KindNamespace, acl.ReadJob), false, "nothing"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %v", test.what, test.got)
		}
	}
}

func TestExplain(t *testing.T) {
	wide, close := mustParse(t, `namespace "*" { policy = "write" }`), mustParse(t, "\nnamespace \"prod\" { policy = \"read\" }")
	wide.Name, close.Name = "wide", "close"
	e := acl.New(wide, close).Explain(inNamespace("prod", acl.SubmitJob))
	text := strings.Join(e.Lines(), "\n")
	for _, part := range []string{`the most specific rule does not grant capability "submit-job" in namespace "prod"`,
		`policy "close", line 2: namespace "prod" grants csi-list-volume,`, "(decides)", `policy "wide", line 1: namespace "*" grants`, "not considered"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

func TestRequirementText(t *testing.T) {
	for text, r := range map[string]acl.Requirement{
		`capability "read-job" in namespace "default": namespace "default" { capabilities = ["read-job"] }`:                                        inNamespace("default", acl.ReadJob),
		`capability "write" on node: node { policy = "write" }`:                                                                                    {Kind: acl.KindNode, Capability: acl.Write},
		`capability "snapshot-save" on operator: operator { capabilities = ["snapshot-save"] }`:                                                    {Kind: acl.KindOperator, Capability: acl.SnapshotSave},
		`capability "read" on node_pool "gpu": node_pool "gpu" { capabilities = ["read"] }`:                                                        {Kind: acl.KindNodePool, Name: "gpu", Capability: acl.Read},
		`capability "read" on site "shop-1": site "shop-1" { policy = "read" }`:                                                                    {Kind: acl.KindSite, Name: "shop-1", Capability: acl.Read},
		`capability "read" on variable "a/b" in namespace "default": namespace "default" { variables { path "a/b" { capabilities = ["read"] } } }`: {Kind: acl.KindVariables, Name: "default", Path: "a/b", Capability: acl.Read},
		`a management token: `: {Kind: acl.KindManagement},
	} {
		if got := r.String() + ": " + r.Rule(); got != text {
			t.Errorf("%s\nnot %s", got, text)
		}
	}
}

func BenchmarkAllows(b *testing.B) {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "namespace \"team-%d-*\" { policy = \"write\" }\nnamespace \"team-%d\" { policy = \"read\" }\n", i, i)
	}
	a := acl.New(mustParse(b, text.String()))
	for name, r := range map[string]acl.Requirement{"name": inNamespace("team-50", acl.ReadJob), "glob": inNamespace("team-50-a", acl.ReadJob)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if !a.Allows(r) {
					b.Fatal("refused")
				}
			}
		})
	}
}
