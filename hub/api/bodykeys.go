package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"skerry/fleet"
)

// ignoredKeys are the keys of request bodies that Nomad's clients send and that change
// nothing here, with the reason. Every other key that no endpoint knows is refused, unless it
// says nothing (null, false, 0, "", [], {}).
var ignoredKeys = map[string]string{
	"Region":         "the parameter region says it",
	"Namespace":      "the parameter namespace says it",
	"AllowStale":     "the parameter stale says it",
	"WaitIndex":      "the parameter index says it",
	"WaitTime":       "the parameter wait says it",
	"Params":         "they are parameters",
	"Headers":        "they are headers",
	"Filter":         "the parameter filter says it",
	"PerPage":        "the parameter per_page says it",
	"NextToken":      "the parameter next_token says it",
	"Reverse":        "the parameter reverse says it",
	"SecretID":       "requests carry no token yet",
	"AuthToken":      "requests carry no token yet",
	"JobID":          "the path names the job",
	"NodeID":         "the path names the node",
	"DeploymentID":   "the path names the deployment",
	"PolicyOverride": "there are no policies that could be overridden",
	"PromotedAt":     "the hub's clock says it",
	"ConsulToken":    "jobs are registered without tokens",
	"VaultToken":     "jobs are registered without tokens",
	"CreateIndex":    "the hub counts",
	"ModifyIndex":    "the hub counts",
	"Hash":           "the hub computes it",
}

// unknownKeys lists the keys of a JSON value that say something and that t has no field for.
func unknownKeys(t reflect.Type, raw json.RawMessage, path string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil // it reads its keys itself
	}
	var unknown []string
	switch t.Kind() {
	case reflect.Struct:
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return nil
		}
		fields := jsonFields(t)
		for _, key := range slices.Sorted(maps.Keys(object)) {
			of, known := fields[strings.ToLower(key)]
			switch {
			case known:
				unknown = append(unknown, unknownKeys(of, object[key], path+key+".")...)
			case ignoredKeys[key] == "" && saysSomething(object[key]):
				unknown = append(unknown, path+key)
			}
		}
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return nil
		}
		for _, e := range list {
			unknown = append(unknown, unknownKeys(t.Elem(), e, path)...)
		}
	}
	return unknown
}

// jsonFields are the types of a struct's fields by their keys in lower case.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			in := f.Type
			for in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			maps.Copy(fields, jsonFields(in))
		case name == "":
			fields[strings.ToLower(f.Name)] = f.Type
		default:
			fields[strings.ToLower(name)] = f.Type
		}
	}
	return fields
}

// saysSomething reports whether a JSON value is more than null, false, 0, "", [] or {}.
func saysSomething(raw json.RawMessage) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return v != nil && v != false && v != float64(0) && v != ""
}

// refuseUnknownKeys refuses a body that asks for something that no endpoint acts on.
func refuseUnknownKeys(b []byte, v any) error {
	unknown := unknownKeys(reflect.TypeOf(v), b, "")
	if len(unknown) == 0 {
		return nil
	}
	return fleet.Errorf(fleet.CodeUnsupported, "read the request's body: nothing acts on %s", strings.Join(unknown, ", ")).
		WithHint("leave it out, or mend its spelling: no key is passed over in silence")
}
