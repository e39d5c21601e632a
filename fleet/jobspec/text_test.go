package jobspec_test

import (
	"strings"
	"testing"

	"skerry/fleet/jobspec"
)

// TestMarksAndLineEnds reads the same job as other editors write it.
func TestMarksAndLineEnds(t *testing.T) {
	const native = "job \"j\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"sim\"\n      env {\n        A = <<EOT\none\ntwo\nEOT\n      }\n    }\n  }\n}\n"
	const api = `{"Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "sim", "Env": {"A": "one\ntwo\n"}}]}]}}`
	const syntax = `{"job": {"j": {"group": {"g": {"task": {"t": {"driver": "sim", "env": {"A": "one\ntwo\n"}}}}}}}}`
	want := mustJSON(t, mustParse(t, native, jobspec.Options{}))
	for name, src := range map[string]string{
		"CRLF": strings.ReplaceAll(native, "\n", "\r\n"), "a mark": "\ufeff" + native, "both": "\ufeff" + strings.ReplaceAll(native, "\n", "\r\n"),
		"JSON": api, "JSON with a mark": "\ufeff" + api, "JSON with CRLF": "\r\n" + api + "\r\n",
		"HCL as JSON": syntax, "HCL as JSON with a mark": "\ufeff" + syntax,
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.ReplaceAll(mustJSON(t, mustParse(t, src, jobspec.Options{})), `\r\n`, `\n`) // a text of several lines keeps the ends that it has
			if got != want {
				t.Errorf("another job:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestUnreadableFilesAreOneMistake: what is wrong with all of a file is said once.
func TestUnreadableFilesAreOneMistake(t *testing.T) {
	for _, name := range []string{"binary.hcl", "utf16.hcl", "latin.hcl", "empty.hcl", "yaml.hcl", "kubernetes.hcl", "array.json"} {
		_, err := jobspec.Parse(name, mustRead(t, "testdata/"+name), jobspec.Options{})
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
