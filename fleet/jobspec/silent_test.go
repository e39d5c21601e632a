package jobspec_test

import (
	"strings"
	"testing"

	"skerry/fleet/jobspec"
)

// TestNothingIsIgnoredSilently reads job files in which something is misspelled, at the wrong place, or there twice: one
// diagnostic names it.
func TestNothingIsIgnoredSilently(t *testing.T) {
	inGroup := func(s string) string {
		return "job \"j\" {\n group \"g\" {\n" + s + "\n task \"t\" {\n driver = \"raw_exec\"\n config { command = \"x\" }\n }\n }\n}\n"
	}
	inTask := func(s string) string {
		return "job \"j\" {\n group \"g\" {\n task \"t\" {\n driver = \"raw_exec\"\n" + s + "\n }\n }\n}\n"
	}
	config := "config { command = \"x\" }\n"
	inJob := func(s string) string { return strings.Replace(inGroup(""), "{\n", "{\n"+s+"\n", 1) }
	job := `"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "x"}}]}]`
	hcl := `"group": {"g": {"task": {"t": {"driver": "raw_exec", "config": {"command": "x"}}}}}`
	for _, tt := range []struct{ name, file, src, want string }{
		{"job attribute", "j.hcl", inJob(`prioriy = 50`), `unknown attribute "prioriy"`},
		{"a group's attribute in the job", "j.hcl", inJob(`count = 3`), `unknown attribute "count"`},
		{"a task's block in the job", "j.hcl", inJob(`resources { cpu = 100 }`), `unknown block "resources"`},
		{"a task's block in a group", "j.hcl", inGroup(`env { A = "1" }`), `unknown block "env"`},
		{"an attribute as block", "j.hcl", inGroup(`count { value = 3 }`), `count`},
		{"a block as attribute", "j.hcl", inGroup(`update = { max_parallel = 1 }`), `update is a block`},
		{"a block twice", "j.hcl", inGroup("update {\nmax_parallel = 1\n}\nupdate {\nmax_parallel = 2\n}"), `only one update block`},
		{"an unknown key in update", "j.hcl", inGroup(`update { max_paralel = 1 }`), `max_paralel`},
		{"restart's key in reschedule", "j.hcl", inGroup(`reschedule { mode = "fail" }`), `mode`},
		{"a name of a block that has none", "j.hcl", inGroup(`restart "x" { attempts = 1 }`), `has no name`},
		{"two names", "j.hcl", "job \"j\" \"k\" {\n}\n", `has one name`},
		{"two jobs", "j.hcl", inGroup("") + inGroup(""), `only one job block`},
		{"an attribute beside the job", "j.hcl", "x = 1\n" + inGroup(""), `unknown attribute "x"`},
		{"a block beside the job", "j.hcl", "plugin \"x\" {}\n" + inGroup(""), `unknown block "plugin"`},
		{"a key of a variable", "j.hcl", "variable \"v\" {\n defalt = 1\n}\n" + inGroup(""), `defalt`},
		{"a name of locals", "j.hcl", "locals \"v\" {\n a = 1\n}\n" + inGroup(""), `a locals block has no name`},
		{"a block in variables", "j.hcl", "variables {\n a = 1\n b {\n c = 1\n }\n}\n" + inGroup(""), `a variables block contains only`},
		{"a name of variables", "j.hcl", "variables \"v\" {\n a = 1\n}\n" + inGroup(""), `a variables block has no name`},
		{"a block in a variable", "j.hcl", "variable \"v\" {\n default = 1\n b {\n c = 1\n }\n}\n" + inGroup(""), `b`},
		{"a key of a dynamic block", "j.hcl", inGroup("dynamic \"service\" {\n for_each = [1]\n iteratr = x\n content { name = \"a\" }\n}"), `iteratr`},
		{"a task in resources", "j.hcl", inTask(config + "resources {\n cpus = 100\n}"), `cpus`},
		{"a key of a template", "j.hcl", inTask(config + "template {\n data = \"a\"\n destination = \"b\"\n change_mod = \"noop\"\n}"), `change_mod`},
		{"a key of a template's script", "j.hcl", inTask(config + "template {\n data = \"a\"\n destination = \"b\"\n change_mode = \"script\"\n change_script {\n comand = \"x\"\n }\n}"), `comand`},
		{"a key of a template's wait", "j.hcl", inTask(config + "template {\n data = \"a\"\n destination = \"b\"\n wait {\n min = \"1s\"\n maxx = \"2s\"\n }\n}"), `maxx`},
		{"a key of a check", "j.hcl", inGroup("service {\n provider = \"nomad\"\n name = \"a\"\n check {\n typ = \"tcp\"\n }\n}"), `typ`},
		{"a check in the group", "j.hcl", inGroup(`check { type = "tcp" }`), `unknown block "check"`},
		{"a port's key", "j.hcl", inGroup("network {\n port \"a\" {\n sttic = 80\n }\n}"), `sttic`},
		{"a volume's key", "j.hcl", inGroup("volume \"a\" {\n type = \"host\"\n sourc = \"x\"\n}"), `sourc`},
		{"a key of meta as block", "j.hcl", inGroup("meta {\n a { b = 1 }\n}"), `no block a is expected`},
		{"a key of periodic", "j.hcl", inJob("type = \"batch\"\nperiodic {\n cron = \"@daily\"\n timezone = \"UTC\"\n}"), `timezone`},
		{"a key of a map twice", "j.hcl", inTask(config + `env = { A = "1", "A" = "2" }`), `"A" is defined twice`},
		{"a key of a nested map twice", "j.hcl", inTask(`config { command = concat("x", { a = [{ b = 1, b = 2 }] }.a) }`), `"b" is defined twice`},
		{"a local's key twice", "j.hcl", "locals {\n m = { a = 1, a = 2 }\n}\n" + inGroup(""), `"a" is defined twice`},
		{"operator and short form", "j.hcl", inJob("constraint {\n attribute = \"${attr.a}\"\n operator = \"!=\"\n version = \">= 1\"\n}"), `operator is "!=", and version says "version"`},
		{"value and short form", "j.hcl", inJob("constraint {\n attribute = \"${attr.a}\"\n value = \"2\"\n regexp = \"x\"\n}"), `value is "2", and regexp says "x"`},
		{"two short forms", "j.hcl", inJob("constraint {\n attribute = \"${attr.a}\"\n version = \">= 1\"\n regexp = \"x\"\n}"), `version and regexp are two conditions`},
		{"attribute and distinct_property", "j.hcl", inJob("constraint {\n attribute = \"${attr.a}\"\n distinct_property = \"${attr.b}\"\n}"), `attribute is "${attr.a}"`},
		{"short form of an affinity", "j.hcl", inJob("affinity {\n attribute = \"${attr.a}\"\n value = \"2\"\n set_contains = \"x\"\n weight = 50\n}"), `value is "2"`},
		{"two names of a target", "j.hcl", inJob("spread {\n attribute = \"${node.datacenter}\"\n target \"a\" {\n value = \"b\"\n percent = 50\n }\n}"), `two names: "a" and "b"`},
		{"JSON: a key of the job", "j.json", `{"Job": {` + job + `, "Prioriy": 50}}`, `Prioriy`},
		{"JSON: a key beside the job", "j.json", `{"Job": {` + job + `}, "EnforceIndex": true}`, `not expected beside Job: EnforceIndex`},
		{"JSON: two jobs", "j.json", `{"Job": {` + job + `}, "job": {` + job + `}}`, `not expected beside Job: job`},
		{"JSON: a key twice", "j.json", `{"Job": {` + job + `, "Type": "batch", "Type": "service"}}`, `the key Job.Type is there twice`},
		{"JSON: a key in two cases", "j.json", `{"Job": {` + job + `, "Type": "batch", "type": "service"}}`, `defined twice`},
		{"JSON: a nested key", "j.json", `{"Job": {` + strings.Replace(job, `"Driver"`, `"Resources": {"Cpus": 1}, "Driver"`, 1) + `}}`, `Cpus`},
		{"HCL in JSON: an attribute twice", "j.json", `{"job": {"j": {"type": "batch", "type": "service", ` + hcl + `}}}`, `"type" is defined twice`},
		{"HCL in JSON: a key of a map twice", "j.json", `{"job": {"j": {"meta": {"a": "1", "a": "2"}, ` + hcl + `}}}`, `"a" is defined twice`},
		{"HCL in JSON: a driver's option twice", "j.json", `{"job": {"j": {` + strings.Replace(hcl, `"command": "x"`, `"command": "x", "command": "y"`, 1) + `}}}`, `"command" is defined twice`},
		{"HCL in JSON: beside the job", "j.json", `{"job": {"j": {` + hcl + `}}, "group": {}}`, `group is not expected`},
		{"HCL in JSON: misspelled", "j.json", `{"job": {"j": {"typ": "batch", ` + hcl + `}}}`, `"typ"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := jobspec.Parse(tt.file, []byte(tt.src), jobspec.Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s\n%v, want %s", tt.src, err, tt.want)
			}
		})
	}
	for vars, want := range map[string]string{"x = 1\ny = 2\n": `"y" is not declared`, "x = 1\nx = 2\n": "v.hcl:2"} {
		_, err := jobspec.Parse("j.hcl", []byte("variable \"x\" {}\n"+inGroup("")), jobspec.Options{VarFiles: []jobspec.File{{Name: "v.hcl", Src: []byte(vars)}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("variables %q: %v, want %s", vars, err, want)
		}
	}
	for name, src := range map[string]string{
		"a pair of short forms in two blocks": inJob("constraint {\n attribute = \"${attr.a}\"\n version = \">= 1\"\n}\nconstraint {\n distinct_hosts = true\n}"),
		"distinct_property with a value":      inJob("constraint {\n distinct_property = \"${attr.a}\"\n value = \"3\"\n}"),
		"the operator again":                  inJob("constraint {\n operator = \"distinct_hosts\"\n distinct_hosts = true\n}"),
		"one key in two maps":                 inTask(config + "env = { A = \"1\" }\nmeta = { A = \"2\" }"),
	} {
		if _, err := jobspec.Parse("j.hcl", []byte(src), jobspec.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The label of a job with an id of its own is its name, as in Nomad.
func TestLabelBesideAnID(t *testing.T) {
	body := "group \"g\" {\n task \"t\" {\n driver = \"raw_exec\"\n config { command = \"x\" }\n }\n }\n}\n"
	for head, want := range map[string]string{
		"job \"a\" {\n": "a a", "job \"a\" {\n id = \"b\"\n": "b a", "job \"a\" {\n id = \"b\"\n name = \"c\"\n": "b c", "job \"a\" {\n name = \"c\"\n": "a c",
	} {
		job, err := jobspec.Parse("j.hcl", []byte(head+body), jobspec.Options{})
		if err != nil || string(job.ID)+" "+job.Name != want {
			t.Errorf("%s: %v, %v, want %s", head, job, err, want)
		}
	}
}

// A saved request to register a job has more keys than the job. Those without a value say nothing.
func TestKeysWithoutAValueBesideTheJob(t *testing.T) {
	src := `{"Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "x"}}]}]},
		"Submission": null, "Region": "", "EnforceIndex": false, "JobModifyIndex": 0}`
	if job, err := jobspec.Parse("j.json", []byte(src), jobspec.Options{}); err != nil || job.ID != "j" {
		t.Errorf("%+v, %v", job, err)
	}
}
