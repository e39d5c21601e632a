package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"skerry/fleet"
)

// ignoredKey is a key at the top of request bodies that Nomad's clients send and that has no effect here.
type ignoredKey struct {
	below string // the beginning of the paths where it is ignored; "": everywhere
	why   string
}

// ignoredKeys are the ignored keys. A body with any other unknown key is refused, unless the key's value is empty (null,
// false, 0, "", [], {}).
var ignoredKeys = map[string]ignoredKey{
	"Region":         {"", "the parameter region says it, and checkScope compares them"},
	"Namespace":      {"", "the parameter namespace says it, and checkScope compares them"},
	"AllowStale":     {"/v1/search", "the parameter stale says it"},
	"WaitIndex":      {"/v1/search", "the parameter index says it"},
	"WaitTime":       {"/v1/search", "the parameter wait says it"},
	"Params":         {"/v1/search", "they are parameters"},
	"Headers":        {"/v1/search", "they are headers"},
	"Filter":         {"/v1/search", "the parameter filter says it"},
	"PerPage":        {"/v1/search", "the parameter per_page says it"},
	"NextToken":      {"/v1/search", "the parameter next_token says it"},
	"Reverse":        {"/v1/search", "the parameter reverse says it"},
	"SecretID":       {"", "the header X-Nomad-Token says it"},
	"AuthToken":      {"", "the header X-Nomad-Token says it"},
	"JobID":          {"/v1/job/", "the path names the job, and checkScope compares them"},
	"NodeID":         {"/v1/node/", "the path names the node, and checkScope compares them"},
	"DeploymentID":   {"/v1/deployment/", "the path names the deployment, and checkScope compares them"},
	"PolicyOverride": {"", "there are no policies that could be overridden"},
	"PromotedAt":     {"/v1/deployment/", "the hub's clock says it"},
	"ConsulToken":    {"", "jobs are registered without tokens"},
	"VaultToken":     {"", "jobs are registered without tokens"},
	"CreateIndex":    {"", "the hub counts"},
	"ModifyIndex":    {"", "the hub counts"},
	"Hash":           {"", "the hub computes it"},
}

// pathKeys are the keys at the top of request bodies that repeat the id in the path.
var pathKeys = []string{"JobID", "NodeID", "DeploymentID"}

// maxNamed is how many unknown keys an error names (the others are counted), maxNamedAt how many bytes of
// each it shows.
const (
	maxNamed   = 20
	maxNamedAt = 200
)

// bodyKeys has the keys of a request body that its Go type has no fields for, those that are there twice, and those that
// repeat something of the request.
type bodyKeys struct {
	dec               *json.Decoder
	endpoint          string                                   // path of the request
	fields            map[reflect.Type]map[string]reflect.Type // as jsonFields has them
	namespace, region string                                   // values of these keys, if the type has no field for them
	ids               map[string]string                        // values of pathKeys
	unknown           []string                                 // keys with content that the type has no field for
	unnamed           int                                      // unknown keys beyond maxNamed
	repeated          string                                   // a key that one object has twice; "": there is none
}

// readBodyKeys collects the keys of the JSON body b, of a request to a path. encoding/json has decoded b into v before.
func readBodyKeys(endpoint string, b []byte, v any) (*bodyKeys, error) {
	k := &bodyKeys{dec: json.NewDecoder(bytes.NewReader(b)), endpoint: endpoint, fields: map[reflect.Type]map[string]reflect.Type{}, ids: map[string]string{}}
	if err := k.readValue(reflect.TypeOf(v), ""); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the request's body: %w", err)
	}
	return k, nil
}

// readValue reads the next value of the body, which encoding/json has decoded into t; path is its place in error
// texts. It also reads both values of a key that is there twice, since encoding/json decodes both.
func (k *bodyKeys) readValue(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := t.Kind()
	isObject, isList := kind == reflect.Struct || kind == reflect.Map, kind == reflect.Slice || kind == reflect.Array
	readsItself := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	if readsItself || !isObject && !isList {
		var skipped json.RawMessage
		return k.dec.Decode(&skipped)
	}
	if opening, err := k.dec.Token(); err != nil || opening != json.Delim('{') && opening != json.Delim('[') {
		return err // null, or bytes, which are text
	}
	seen := map[string]bool{}
	for k.dec.More() {
		var err error
		if isList {
			err = k.readValue(t.Elem(), path)
		} else {
			err = k.readMember(t, path, seen)
		}
		if err != nil {
			return err
		}
	}
	_, err := k.dec.Token()
	return err
}

// readMember reads the next key of an object and its value. It notes a key that t has no field for, unless it is one
// of ignoredKeys or its value is empty, and a key that seen, the object's keys before it, has already.
func (k *bodyKeys) readMember(t reflect.Type, path string, seen map[string]bool) error {
	token, err := k.dec.Token()
	if err != nil {
		return err
	}
	key, _ := token.(string)
	if t.Kind() == reflect.Map {
		k.noteKey(seen, key, path+key)
		return k.readValue(t.Elem(), path+key+".")
	}
	if k.fields[t] == nil {
		k.fields[t] = jsonFields(t)
	}
	of, known := k.fields[t][foldedKey(key)]
	if known {
		k.noteKey(seen, foldedKey(key), path+key)
	}
	isPathKey := path == "" && slices.ContainsFunc(pathKeys, func(name string) bool { return strings.EqualFold(name, key) })
	if known && !isPathKey {
		return k.readValue(of, path+key+".")
	}
	var value json.RawMessage
	if err := k.dec.Decode(&value); err != nil {
		return err
	}
	text := func() (s string) {
		_ = json.Unmarshal(value, &s) // a value that is no text names nothing
		return s
	}
	ignored := path == "" && isIgnored(k.endpoint, key)
	switch {
	case isPathKey && ignored:
		k.ids[key] = text()
	case path == "" && strings.EqualFold(key, "Namespace"):
		k.namespace = text()
	case path == "" && strings.EqualFold(key, "Region"):
		k.region = text()
	case !known && !ignored && saysSomething(value):
		k.addUnknown(path + key)
	}
	return nil
}

// noteKey adds a key to those of an object, and notes the path of one that is there already.
func (k *bodyKeys) noteKey(seen map[string]bool, key, path string) {
	if seen[key] && k.repeated == "" {
		k.repeated = shortPath(path)
	}
	seen[key] = true
}

// addUnknown adds a key's path to the unknown keys. Above maxNamed it only counts; a long path is cut.
func (k *bodyKeys) addUnknown(path string) {
	if len(k.unknown) == maxNamed {
		k.unnamed++
		return
	}
	k.unknown = append(k.unknown, shortPath(path))
}

// shortPath returns the path of a key, cut after maxNamedAt bytes.
func shortPath(path string) string {
	if len(path) > maxNamedAt {
		path = strings.ToValidUTF8(path[:maxNamedAt], "") + "…"
	}
	return path
}

// jsonFields returns the types of a struct's fields by their JSON keys, as foldedKey writes them. As in
// encoding/json, a struct's own field wins over the field of an embedded struct.
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
			for key, of := range jsonFields(in) {
				if _, own := fields[key]; !own {
					fields[key] = of
				}
			}
		case !f.IsExported():
		case name == "":
			fields[foldedKey(f.Name)] = f.Type
		default:
			fields[foldedKey(name)] = f.Type
		}
	}
	return fields
}

// foldedKey returns a form of a key that is equal for keys that encoding/json treats as one: those that differ only
// in case.
func foldedKey(key string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, key)
}

// isIgnored reports whether a key, in any case, is one of ignoredKeys for a request to a path.
func isIgnored(path, key string) bool {
	for known, ignored := range ignoredKeys {
		if strings.EqualFold(known, key) {
			return strings.HasPrefix(path, ignored.below)
		}
	}
	return false
}

// saysSomething reports whether a valid JSON value has content: it is not null, false, a zero number, "", or an
// empty list or object. The value has no space around it.
func saysSomething(value json.RawMessage) bool {
	switch text := string(value); {
	case text == "null", text == "false", text == `""`:
		return false
	case value[0] == '[', value[0] == '{':
		return len(bytes.TrimSpace(value[1:len(value)-1])) > 0
	}
	n, err := strconv.ParseFloat(string(value), 64)
	return err != nil || n != 0
}

// refuseUnknown returns an error that names the unknown keys; nil: there are none.
func (k *bodyKeys) refuseUnknown() error {
	if len(k.unknown) == 0 {
		return nil
	}
	list := strings.Join(k.unknown, ", ")
	if k.unnamed > 0 {
		list += fmt.Sprintf(" and %d other keys", k.unnamed)
	}
	return fleet.Errorf(fleet.CodeUnsupported, "read the request's body: unknown or unsupported keys: %s", list).
		WithHint("leave it out, or correct its spelling: no key is ignored silently")
}

// refuseRepeated returns an error that names a key that an object has twice: only one of its values could count.
func (k *bodyKeys) refuseRepeated() error {
	if k.repeated == "" {
		return nil
	}
	return fleet.Errorf(fleet.CodeInvalid, "read the request's body: the key %s is there twice", k.repeated).WithHint("leave one of them out")
}

// checkScope returns an error if the body's keys Namespace, Region or one of pathKeys contradict the request's parameters,
// the cluster or the path. It only sees Namespace and Region if the endpoint's own type has no fields for them.
func (a *API) checkScope(r *http.Request, k *bodyKeys) error {
	for _, key := range slices.Sorted(maps.Keys(k.ids)) {
		if named, id := k.ids[key], r.PathValue("id"); named != "" && id != "" && named != id {
			return fleet.Errorf(fleet.CodeInvalid, "read the request's body: %s is %q, and the path names %q", key, named, id)
		}
	}
	namespace := requestNamespace(r)
	if k.namespace != "" && k.namespace != namespace {
		return fleet.Errorf(fleet.CodeInvalid, "read the request's body: it names namespace %q, the request names %q", k.namespace, namespace).
			WithHint("give the namespace as the parameter namespace")
	}
	own := a.cfg.Cluster.Self().Region
	if k.region != "" && k.region != own && k.region != fleet.DefaultRegion {
		return fleet.Errorf(fleet.CodeInvalid, "read the request's body: no path to region %q: this cluster's is %q", k.region, own).WithHint(oneRegion)
	}
	return nil
}
