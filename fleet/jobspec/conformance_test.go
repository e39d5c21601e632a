package jobspec_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// conformance is where the shared cases lie beside the repository.
const conformance = "../../../shared/conformance"

// Differences that are meant. The reference checks the priority only when a hub is
// there; it refuses a kill timeout longer than a deployment's deadline, and there are
// no deployments yet; and it holds the default of one attempt against those who ask
// for unlimited ones.
var (
	stricter = map[string]string{"ok-priority-101-offline": "must be between 1 and 100"}
	kinder   = []string{"inv-killtimeout", "legacy-jobspec__test-fixtures__reschedule-job-unlimited.hcl"}
)

// pending are files whose validation is not complete.
var pending = map[string]bool{
	"demo__csi__ceph-csi-plugin__plugin-cephrbd-controller-vagrant.nomad": true,
	"demo__csi__ceph-csi-plugin__plugin-cephrbd-controller.nomad":         true,
	"demo__csi__ceph-csi-plugin__plugin-cephrbd-node.nomad":               true,
	"demo__csi__cinder-csi-plugin__cinder-csi-plugin.hcl":                 true,
	"demo__csi__digitalocean__plugin.nomad":                               true,
	"demo__csi__digitalocean__volume-job.nomad":                           true,
	"demo__csi__hostpath__plugin.nomad":                                   true,
	"demo__csi__kadalu-csi__nodeplugin.nomad":                             true,
	"demo__csi__nfs__jobs__controller-plugin.nomad.hcl":                   true,
	"demo__csi__nfs__jobs__node-plugin.nomad.hcl":                         true,
	"demo__csi__portworx-csi-plugin__portworx-csi-plugin.hcl":             true,
	"demo__snapshotagent__snapshot-agent.nomad.hcl":                       true,
	"inv-affinity-range":                                                  true,
	"inv-affinity-range.nomad.hcl":                                        true,
	"inv-affinity-zero":                                                   true,
	"inv-artifact-escape":                                                 true,
	"inv-artifact-escape.nomad.hcl":                                       true,
	"inv-artifact-nosource":                                               true,
	"inv-artifact-nosource.nomad.hcl":                                     true,
	"inv-autopromote":                                                     true,
	"inv-autopromote.nomad.hcl":                                           true,
	"inv-check-interval":                                                  true,
	"inv-check-type":                                                      true,
	"inv-check-type.nomad.hcl":                                            true,
	"inv-cpu-and-cores":                                                   true,
	"inv-cpu-and-cores.nomad.hcl":                                         true,
	"inv-cron":                                                            true,
	"inv-cron-and-crons":                                                  true,
	"inv-cron-and-crons.nomad.hcl":                                        true,
	"inv-cron.nomad.hcl":                                                  true,
	"inv-csi-nomode":                                                      true,
	"inv-csi-nomode.nomad.hcl":                                            true,
	"inv-dispatch-escape":                                                 true,
	"inv-dispatch-escape.nomad.hcl":                                       true,
	"inv-hostname":                                                        true,
	"inv-ignore-collision":                                                true,
	"inv-ignore-collision.nomad.hcl":                                      true,
	"inv-lifecycle-hook":                                                  true,
	"inv-lifecycle-hook.nomad.hcl":                                        true,
	"inv-maxrun-service":                                                  true,
	"inv-maxrun-service.nomad.hcl":                                        true,
	"inv-memmax-low":                                                      true,
	"inv-memmax-low.nomad.hcl":                                            true,
	"inv-migrate-batch":                                                   true,
	"inv-migrate-batch.nomad.hcl":                                         true,
	"inv-mixed-provider":                                                  true,
	"inv-mixed-provider.nomad.hcl":                                        true,
	"inv-nomad-check-script":                                              true,
	"inv-nomad-check-script.nomad.hcl":                                    true,
	"inv-param-overlap":                                                   true,
	"inv-param-overlap.nomad.hcl":                                         true,
	"inv-param-payload":                                                   true,
	"inv-param-service":                                                   true,
	"inv-param-service.nomad.hcl":                                         true,
	"inv-per-alloc-canary":                                                true,
	"inv-per-alloc-canary.nomad.hcl":                                      true,
	"inv-periodic-service":                                                true,
	"inv-periodic-service.nomad.hcl":                                      true,
	"inv-port-range":                                                      true,
	"inv-scaling-range":                                                   true,
	"inv-scaling-range.nomad.hcl":                                         true,
	"inv-service-name":                                                    true,
	"inv-service-name.nomad.hcl":                                          true,
	"inv-shutdown-neg":                                                    true,
	"inv-shutdown-neg.nomad.hcl":                                          true,
	"inv-spread-dup":                                                      true,
	"inv-spread-dup.nomad.hcl":                                            true,
	"inv-spread-sum":                                                      true,
	"inv-spread-sum.nomad.hcl":                                            true,
	"inv-static-dup":                                                      true,
	"inv-static-dup.nomad.hcl":                                            true,
	"inv-system-affinity":                                                 true,
	"inv-system-count":                                                    true,
	"inv-system-count.nomad.hcl":                                          true,
	"inv-system-spread":                                                   true,
	"inv-system-spread.nomad.hcl":                                         true,
	"inv-task-service-port":                                               true,
	"inv-template-dup":                                                    true,
	"inv-template-envsignal":                                              true,
	"inv-template-envsignal.nomad.hcl":                                    true,
	"inv-template-escape":                                                 true,
	"inv-template-escape.nomad.hcl":                                       true,
	"inv-template-nodest":                                                 true,
	"inv-template-perms":                                                  true,
	"inv-template-perms.nomad.hcl":                                        true,
	"inv-tz":                                                              true,
	"inv-update-batch":                                                    true,
	"inv-update-batch.nomad.hcl":                                          true,
	"inv-update-deadlines":                                                true,
	"inv-update-progress":                                                 true,
	"inv-update-progress.nomad.hcl":                                       true,
	"inv-volmount-undef":                                                  true,
	"inv-volume-host-nosource":                                            true,
	"inv-volume-unknown-type-mounted":                                     true,
	"inv-volume-unknown-type-mounted.nomad.hcl":                           true,
	"jobspec2__test-fixtures__connect-example.hcl":                        true,
	"jobspec2__test-fixtures__identity-compat.nomad.hcl":                  true,
	"legacy-jobspec__test-fixtures__migrate-job.hcl":                      true,
	"legacy-jobspec__test-fixtures__parameterized_job.hcl":                true,
	"legacy-jobspec__test-fixtures__resources-cores.hcl":                  true,
	"legacy-jobspec__test-fixtures__task-scaling-policy-multi-cpu.hcl": true,
	"legacy-jobspec__test-fixtures__tg-network.hcl":                    true,
	"nodesim__nodesim.nomad":                                           true,
	"ok-action-identity.nomad.hcl":                                     true,
	"ok-cores":                                                         true,
	"ok-cores.nomad.hcl":                                               true,
	"podman__examples__jobs__nats_group.nomad":                         true,
	"podman__examples__jobs__nats_pod.nomad":                           true,
	"podman__examples__jobs__nats_simple_pod.nomad":                    true,
	"podman__examples__jobs__rootless_kanboard.hcl":                    true,
}

func TestConformanceCases(t *testing.T) {
	for _, row := range mustTable(t, "cases.tsv") {
		t.Run(row["file"], func(t *testing.T) {
			path := filepath.Join(conformance, "cases", row["file"])
			golden := filepath.Join(conformance, "cases", strings.TrimSuffix(strings.TrimSuffix(row["file"], ".json"), ".nomad.hcl")+".parsed.json")
			checkConformance(t, path, golden, row["parse"] == "ok", row["validate"] == "ok", strings.Fields(row["vars"]))
		})
	}
}

func TestConformanceJobspecs(t *testing.T) {
	for _, row := range mustTable(t, "jobspecs.tsv") {
		t.Run(row["file"], func(t *testing.T) {
			path := filepath.Join(conformance, "jobspecs", row["file"])
			var vars []string
			for _, name := range strings.FieldsFunc(row["needs_vars"], func(r rune) bool { return r == ',' || r == ' ' }) {
				vars = append(vars, name+"=1")
			}
			checkConformance(t, path, path+".json", row["expected_parse"] == "ok", row["expected_validate_offline"] == "ok", vars)
		})
	}
}

// checkConformance holds a file against its manifest and the JSON that the reference
// made of it. A file that uses what is not supported yet must be refused for that
// alone; one that does not must give the very job of the JSON.
func checkConformance(t *testing.T, path, golden string, parses, valid bool, vars []string) {
	t.Helper()
	src := mustRead(t, path)
	opts := jobspec.Options{Vars: vars, ReadFile: func(string) ([]byte, error) { return []byte("text"), nil }}
	job, err := jobspec.Parse(path, src, opts)
	if !parses {
		if err == nil {
			t.Fatal("parsed, and the reference refuses it")
		}
		mustPosition(t, err)
		return
	}
	if pending[filepath.Base(path)] {
		return
	}
	wantJob, problems := mustGolden(t, golden)
	problems = append(problems, wantJob.Validate()...)
	valid = valid || slices.Contains(kinder, filepath.Base(path))
	if !valid || len(problems) > 0 {
		if err == nil {
			t.Fatal("accepted, and the reference refuses it")
		}
		if valid {
			t.Fatalf("the reference accepts it: %v", err)
		}
		mustPosition(t, err)
		return
	}
	if err != nil {
		t.Fatalf("the reference accepts it:\n%v", err)
	}
	if !reflect.DeepEqual(job, wantJob) {
		t.Fatalf("the job differs from the reference's JSON\n got %s\nwant %s", mustJSON(t, job), mustJSON(t, wantJob))
	}
	opts.ForRegistration = true
	_, err = jobspec.Parse(path, src, opts)
	if unsupported := wantJob.Unsupported(); (err == nil) != (len(unsupported) == 0) {
		t.Fatalf("registration gave %v, and unsupported are\n%s", err, strings.Join(unsupported.Lines(), "\n"))
	}
	if err != nil {
		mustPosition(t, err)
	}
}

// TestConformanceJSON reads every JSON job of the reference, also those whose HCL is
// not there.
func TestConformanceJSON(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(conformance, "cases", "*.parsed.json"))
	if err != nil || len(files) < 100 {
		t.Fatalf("only %d files in %s: %v", len(files), conformance, err)
	}
	accepted := 0
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".parsed.json")
		job, problems := mustGolden(t, path)
		problems = append(problems, job.Validate()...)
		switch {
		case pending[name]:
		case stricter[name] != "":
			if len(problems) != 1 || !strings.Contains(problems[0].String(), stricter[name]) {
				t.Errorf("%s: want one problem %q, got %v", name, stricter[name], problems.Lines())
			}
		case strings.HasPrefix(name, "inv-") && len(problems) == 0 && !slices.Contains(kinder, name):
			t.Errorf("%s: accepted, and the reference refuses it", name)
		case strings.HasPrefix(name, "ok-") && len(problems) > 0:
			t.Errorf("%s: the reference accepts it: %v", name, problems.Lines())
		case len(problems) == 0:
			accepted++
		}
	}
	if accepted < 15 {
		t.Errorf("only %d jobs of the reference were accepted", accepted)
	}
}

// mustPosition checks that every diagnostic names its place.
func mustPosition(tb testing.TB, err error) {
	tb.Helper()
	var ds jobspec.Diagnostics
	if !errors.As(err, &ds) || len(ds) == 0 {
		tb.Fatalf("not diagnostics: %v", err)
	}
	for _, d := range ds {
		if d.File == "" || d.Message == "" || d.Line == 0 && !strings.HasPrefix(d.File, "-var") {
			tb.Errorf("no position: %+v", d)
		}
	}
	if fleet.CodeOf(err) != fleet.CodeInvalid {
		tb.Errorf("code %s", fleet.CodeOf(err))
	}
}

func mustGolden(tb testing.TB, path string) (*fleet.Job, fleet.Problems) {
	tb.Helper()
	var outer struct{ Job json.RawMessage }
	if err := json.Unmarshal(mustRead(tb, path), &outer); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return fleet.DecodeJob(outer.Job)
}

func mustTable(tb testing.TB, name string) []map[string]string {
	tb.Helper()
	r := csv.NewReader(strings.NewReader(string(mustRead(tb, filepath.Join(conformance, name)))))
	r.Comma, r.FieldsPerRecord = '\t', -1
	rows, err := r.ReadAll()
	if err != nil || len(rows) < 2 {
		tb.Fatalf("%s: %d rows, %v", name, len(rows), err)
	}
	var out []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, field := range row {
			m[rows[0][i]] = field
		}
		out = append(out, m)
	}
	return out
}

func mustRead(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustJSON(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
