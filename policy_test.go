// Package skerry_test holds the import policy: who may import whom, and which
// package is the one door to each large library. Changing it is a decision of
// its own.
package skerry_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// policy lists, for a package and all below it, what of ours it may import
// (itself and what is below it always). The first line that matches counts.
const policy = `
fleet/acl               < fleet
fleet/aclpolicy         < fleet
fleet/admission         < fleet
fleet/cron              < fleet
fleet/diff              < fleet
fleet/jobspec           < fleet
fleet/placement         < fleet
fleet/syntax            < fleet
fleet/taskenv           < fleet
fleet/usage             < fleet
fleet/timeline          < fleet
fleet/template          < fleet
fleet/validate          < fleet
fleet                   <
reconcile               < fleet
syncproto/transport     < fleet syncproto
syncproto               < fleet
api                     < fleet
client                  < fleet api
drivers                 < fleet
devices                 < fleet

hub/state               < fleet syncproto
hub/access              < fleet syncproto hub/state hub/workload
hub/rpc                 < fleet syncproto
hub/broker              < fleet hub/rpc hub/state
hub/planner             < fleet hub/rpc hub/state
hub/rollout             < fleet reconcile hub/state
hub/scheduler           < fleet reconcile hub/state
hub/consensus           < fleet syncproto hub/rpc hub/state
hub/drainer             < fleet hub/state
hub/collector           < fleet hub/state
hub/periodic            < fleet hub/state
hub/gateway             < fleet syncproto hub/rpc hub/state hub/workload
hub/liveness            < fleet syncproto hub/rpc hub/state
hub/members             < fleet
hub/transit             < fleet
hub/pki                 < fleet syncproto hub/rpc hub/state
hub/secrets             < fleet hub/rpc hub/state
hub/workload            < fleet syncproto
hub/snapshot            < fleet hub/rpc hub/state
hub/bootstrap           < fleet hub/consensus hub/pki hub/rpc hub/state
hub/events              < fleet api hub/state
hub/audit               < fleet api hub/state
hub/login               < fleet hub/state
hub/api                 < fleet api syncproto hub/access hub/login hub/state hub/workload
hub                     < fleet reconcile syncproto

edge/contract           < fleet
edge/journal            < fleet syncproto
edge/link               < fleet syncproto edge/journal
edge/hostvolumes        < fleet syncproto
edge/machinekey         < fleet
edge/audit              < fleet
edge/variables          < fleet syncproto
edge/identities/files   < fleet drivers syncproto edge/artifacts edge/identities edge/runner
edge/identities         < fleet syncproto
edge/sitecodes          < fleet syncproto
edge/neighbours         < fleet syncproto
edge/prefetch           < fleet syncproto
edge/dataarchive        < fleet
edge/allocs             < fleet syncproto edge/contract edge/dataarchive edge/journal
edge/runner             < fleet drivers edge/contract
edge/network            < fleet drivers edge/runner
edge/volumes            < fleet drivers edge/runner
edge/secretdirs         < fleet drivers edge/runner
edge/fingerprint        < fleet drivers devices
edge/cores              < fleet drivers edge/runner
edge/hardware           < fleet drivers devices edge/runner
edge/local              < fleet edge/store
edge/files              < fleet
edge/diskspace          <
edge/store              < fleet
edge/templates          < fleet drivers edge/artifacts edge/machinekey edge/runner
edge/artifacts          < fleet drivers edge/runner edge/store
edge/checks             < fleet
edge/logins/tokens      < fleet drivers edge/artifacts edge/consul edge/identities edge/logins edge/runner edge/vault
edge/logins             < fleet
edge/consul             < fleet edge/logins
edge/vault              < fleet edge/logins
edge/names              < fleet
edge/swarm              < fleet edge
edge                    < fleet syncproto

chaos/fabric            <
chaos/deterministic     <
chaos/mutate            < chaos/proc
chaos/faultnet          <
chaos/proc              <
chaos/check             < fleet
chaos/schedule          < fleet
chaos/history           < fleet chaos/check
chaos/report            < fleet chaos/check chaos/history
chaos                   < fleet api client syncproto hub edge drivers

internal/clienttls      <
internal/remoteapi      < fleet internal/clienttls
internal/datadir        < fleet internal/durable
internal/logtap         < fleet
internal/sitecode       < fleet
internal                <

cmd/console             < fleet
cmd/jobfile             < fleet
cmd/edged               < fleet drivers devices edge cmd/console
cmd/hubd                < fleet drivers hub cmd/console
cmd/skerry/spec         < fleet
cmd/auditchain          < fleet cmd/console
cmd/skerry/local        < fleet edge/artifacts edge/local edge/store cmd/auditchain cmd/console
cmd/skerry/contextfile  < fleet
cmd/skerry/command      < fleet api client cmd/console cmd/skerry/contextfile
cmd/skerry/hubcontext   < fleet client cmd/console cmd/skerry/command cmd/skerry/contextfile
cmd/skerry/progress     < fleet api cmd/console
cmd/skerry/follow       < fleet api client cmd/console cmd/skerry/command cmd/skerry/progress
cmd/skerry/terminal     < fleet client cmd/console cmd/skerry/command
cmd/skerry/deployment   < fleet api client cmd/console cmd/skerry/command cmd/skerry/progress
cmd/skerry/audit        < fleet api cmd/auditchain cmd/console cmd/skerry/command
cmd/skerry/eval         < fleet client cmd/console cmd/skerry/command cmd/skerry/follow
cmd/skerry/alloc        < fleet api client cmd/console cmd/skerry/command cmd/skerry/follow cmd/skerry/terminal
cmd/skerry/job          < fleet api client drivers/builtin cmd/console cmd/jobfile cmd/skerry/command cmd/skerry/deployment cmd/skerry/follow cmd/skerry/progress cmd/skerry/terminal
cmd/skerry/volume       < fleet api client cmd/console cmd/skerry/command cmd/skerry/spec
cmd/skerry/acl          < fleet api client cmd/console cmd/skerry/command cmd/skerry/contextfile cmd/skerry/spec
cmd/skerry/variable     < fleet api client cmd/console cmd/skerry/command cmd/skerry/spec
cmd/skerry/namespace    < fleet api client cmd/console cmd/skerry/command cmd/skerry/spec
cmd/skerry/node         < fleet api client syncproto/identity cmd/console cmd/skerry/command cmd/skerry/spec
cmd/skerry/operator     < fleet api client hub/state cmd/console cmd/skerry/command
cmd/skerry/service      < fleet api client cmd/console cmd/skerry/command
cmd                     < fleet api client reconcile syncproto drivers devices hub edge chaos
`

// anybody may import this: it serves the others.
const anybody = "internal"

// doors names the one place that may import each large library.
var doors = map[string][]string{
	"github.com/quic-go/quic-go":      {"syncproto/transport"},
	"github.com/fxamacker/cbor/v2":    {"internal/codec"},
	"github.com/hashicorp/raft":       {"hub/consensus"},
	"github.com/hashicorp/raft-wal":   {"hub/consensus"},
	"github.com/hashicorp/memberlist": {"hub/members"},
	"github.com/hashicorp/go-memdb":   {"hub/state"},
	"modernc.org/sqlite":              {"edge/journal"},
	"github.com/google/go-tpm":        {"edge/machinekey/tpm"},
	"github.com/hashicorp/hcl/v2":     {"fleet/aclpolicy", "fleet/jobspec", "fleet/syntax", "cmd"},
	"github.com/hashicorp/cronexpr":   {"fleet/cron"},
	"github.com/spf13/cobra":          {"cmd"},
	"github.com/hashicorp/go-bexpr":   {"hub/api", "hub/login"},
	"github.com/coreos/go-oidc/v3":    {"hub/login"},
	"github.com/go-jose/go-jose/v4":   {"hub/login", "hub/workload"},
	"golang.org/x/oauth2":             {"hub/login"},
	"github.com/moby/moby":            {"drivers/docker"},
	"github.com/moby/profiles":        {"drivers/oci"},
	"github.com/opencontainers":       {"drivers/oci", "edge/artifacts"},
	"oras.land/oras-go":               {"edge/artifacts"},
	"github.com/klauspost/compress":   {"edge/artifacts"},
	"github.com/ulikunitz/xz":         {"edge/artifacts"},
	"github.com/gorilla/websocket":    {"hub/api", "client"},
	"github.com/tetratelabs/wazero":   {"drivers/wasm"},
}

const module = "skerry"

type pkg struct {
	ImportPath string
	Imports    []string
}

func mustListPackages(tb testing.TB) []pkg {
	tb.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		tb.Fatalf("list packages: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			tb.Fatalf("read the list of packages: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

type rule struct {
	folder string
	may    []string
}

func mustParsePolicy(tb testing.TB) []rule {
	tb.Helper()
	var rules []rule
	for line := range strings.Lines(policy) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		folder, may, ok := strings.Cut(line, "<")
		if !ok {
			tb.Fatalf("policy: no '<' in %q", line)
		}
		rules = append(rules, rule{strings.TrimSpace(folder), strings.Fields(may)})
	}
	return rules
}

func TestImportPolicy(t *testing.T) {
	rules := mustParsePolicy(t)
	used := map[string]bool{}
	for _, p := range mustListPackages(t) {
		path, ok := strings.CutPrefix(p.ImportPath, module+"/")
		if !ok {
			continue
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return within(path, r.folder) })
		if i < 0 {
			t.Errorf("%s: the policy does not know this package", path)
			continue
		}
		r := rules[i]
		used[r.folder] = true
		for _, imported := range p.Imports {
			if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
				inside := func(folder string) bool { return within(ours, folder) }
				allowed := inside(r.folder) || inside(anybody) || slices.ContainsFunc(r.may, inside)
				if !allowed {
					t.Errorf("%s imports %s, which the policy does not allow", path, ours)
				}
			}
			for library, places := range doors {
				if within(imported, library) && !slices.ContainsFunc(places, func(f string) bool { return within(path, f) }) {
					t.Errorf("%s imports %s: its door is %s", path, imported, strings.Join(places, " or "))
				}
			}
		}
	}
	for _, r := range rules {
		if !used[r.folder] {
			t.Errorf("policy: no package is in %s", r.folder)
		}
	}
}

// TestImportPolicyStandardLibrary checks that the nouns and the decisions stay
// free of everything else.
func TestImportPolicyStandardLibrary(t *testing.T) {
	pure := []string{"fleet", "fleet/diff", "reconcile", "drivers", "devices"}
	for _, p := range mustListPackages(t) {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if !slices.Contains(pure, path) {
			continue
		}
		for _, imported := range p.Imports {
			ours, isOurs := strings.CutPrefix(imported, module+"/")
			if strings.Contains(imported, ".") || isOurs && !slices.Contains(pure, ours) {
				t.Errorf("%s imports %s: it may use the standard library alone", path, imported)
			}
		}
	}
}
