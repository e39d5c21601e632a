package jobspec_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"skerry/fleet/jobspec"
)

// otherNames are the names of Nomad's job files that the parser refuses as unknown, by
// [SECTION] NAME, with the reason.
var otherNames = map[string]string{
	"[job.group.network] reserved_ports": "a port block with static is one",
	"[job.group.task.scaling] type":      "the block's label says it",
}

// TestNamesOfNomadsJobFiles walks the type that Nomad's parser reads a job file into: the parser
// here knows each name, as an attribute or a block like there, and makes the same key of it.
// TestAttributes checks how each is handled.
func TestNamesOfNomadsJobFiles(t *testing.T) {
	table, seen, n := mustAttributes(t), map[string]bool{}, 0
	unfound := maps.Clone(otherNames)
	var walk func(of reflect.Type, section string)
	walk = func(of reflect.Type, section string) {
		if seen[section] {
			return
		}
		seen[section] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name, kind, _ := strings.Cut(f.Tag.Get("hcl"), ",")
			at := "[" + section + "] " + name
			switch {
			case name == "" || kind == "label":
				continue
			case otherNames[at] != "":
				delete(unfound, at)
				continue
			}
			n++
			key := f.Name
			if tagged, _, _ := strings.Cut(f.Tag.Get("json"), ","); tagged != "" {
				key = tagged
			}
			b, isBlock := table.schemaBlockOf(section, name)
			if isBlock && b.Texts && b.Key == key {
				continue // it may be written as either
			}
			if kind != "block" {
				i := slices.IndexFunc(table.parts[section].Attrs, func(a jobspec.SchemaAttr) bool { return a.Name == name })
				if i < 0 || table.parts[section].Attrs[i].Key != key {
					t.Errorf("%s: the parser does not know it as an attribute that becomes %s", at, key)
				}
				continue
			}
			if !isBlock || b.Key != key && b.Key != "Identity" {
				t.Errorf("%s: the parser does not know it as a block that becomes %s, but %+v", at, key, b)
				continue
			}
			if in := blockType(f.Type); in != nil && !b.Free && !b.Texts {
				walk(in, b.Part)
			}
		}
	}
	walk(reflect.TypeFor[api.Job](), "job")
	for at, why := range unfound {
		t.Errorf("otherNames: Nomad has no %s (%s)", at, why)
	}
	if n < 300 {
		t.Errorf("only %d names were found", n)
	}
}

// blockType is the type of a block's content; nil: it is a map of plain values.
func blockType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}
