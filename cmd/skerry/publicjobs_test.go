package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skerry/cmd/jobfile"
	"skerry/drivers/builtin"
	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// compatibility has tables that tests write.
const compatibility = "../../docs/compatibility.md"

// registersVerdict stands for a job file that is registered.
const registersVerdict = "registers"

// publicVars are values for the files that need some.
var publicVars = map[string][]string{"nodesim__nodesim.nomad": {"num_nodes=1", "server=127.0.0.1"}}

// notSupported is the message about a block that nothing acts on yet.
var notSupported = regexp.MustCompile(`^(.*) is not supported yet$`)

// driverLimit is the message about what a driver can do on no machine.
var driverLimit = regexp.MustCompile(`^driver "[a-z_]+" cannot (run|give|mount) | is not supported with the driver `)

// TestPublicJobFiles holds the table of docs/compatibility.md against the public job files: how many of those that the
// reference takes are registered, and why the others are not. -rewrite writes the table anew.
func TestPublicJobFiles(t *testing.T) {
	reasons := map[string]int{}
	files := mustValidFiles(t)
	for _, name := range files {
		for reason := range registrationReasons(t, name) {
			reasons[reason]++
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| of %d public job files that Nomad takes | files |\n|---|---|\n| are registered | %d |\n", len(files), reasons[registersVerdict])
	delete(reasons, registersVerdict)
	order := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		if reasons[a] != reasons[b] {
			return reasons[b] - reasons[a]
		}
		return strings.Compare(a, b)
	})
	for _, reason := range order {
		fmt.Fprintf(&table, "| are refused: %s | %d |\n", reason, reasons[reason])
	}
	mustHaveTable(t, "public job files", table.String())
}

// mustHaveTable compares a table of docs/compatibility.md, between comments with its name, and writes it with -rewrite.
func mustHaveTable(t *testing.T, name, table string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
	text, err := os.ReadFile(compatibility)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	had, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table %q", compatibility, name)
	}
	if had == table {
		return
	}
	if !*rewrite {
		t.Fatalf("%s differs from what the files show, rewrite it with -rewrite:\n%s", compatibility, table)
	}
	if err := os.WriteFile(compatibility, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// parsePublicJob reads a job file as for its registration.
func parsePublicJob(t *testing.T, name string) (*fleet.Job, error) {
	t.Helper()
	path := filepath.Join(jobspecs, name)
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opts := jobspec.Options{ForRegistration: true, Configs: builtin.Configs(), Files: jobfile.FolderOf(path), Vars: publicVars[name]}
	return jobspec.Parse(name, src, opts)
}

// registrationReasons returns why a job file is refused, each reason once; registersVerdict alone if it is not.
func registrationReasons(t *testing.T, name string) map[string]bool {
	_, err := parsePublicJob(t, name)
	if err == nil {
		return map[string]bool{registersVerdict: true}
	}
	var wrong jobspec.Diagnostics
	if !errors.As(err, &wrong) {
		t.Fatalf("%s: %v", name, err)
	}
	reasons := map[string]bool{}
	for _, d := range wrong {
		switch m := notSupported.FindStringSubmatch(d.Message); {
		case m != nil:
			reasons[m[1]] = true
		case strings.HasPrefix(d.Message, "config of "):
			reasons["the config block of driver "+strings.ReplaceAll(strings.TrimPrefix(d.Message, "config of "), `"`, "`")] = true
		case driverLimit.MatchString(d.Message):
			reasons["something that the driver of the task cannot do"] = true
		case strings.HasPrefix(d.Message, "template:"):
			reasons["a function of a template"] = true
		case strings.Contains(d.Message, `function "file" failed`):
			reasons["a file that it reads is not there"] = true
		default:
			reasons["another reason"] = true
		}
		t.Logf("%s", d)
	}
	return reasons
}
