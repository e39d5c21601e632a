package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"skerry/fleet"
)

// ignoredKeys are the keys of request bodies that Nomad's clients send and that change
// nothing here, with the reason. Every other key that no endpoint knows is refused, unless it
// says nothing (null, false, 0, "", [], {}).
var ignoredKeys = map[string]string{
	"Region":         "the parameter region says it, and checkScope compares them",
	"Namespace":      "the parameter namespace says it, and checkScope compares them",
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

// Bounds of what a refusal says: how many unknown keys it names, the others being counted, and
// how much of each.
const (
	maxNamed   = 20
	maxNamedAt = 200
)

// bodyKeys is what the keys of a body say, beside what is decoded into its type.
type bodyKeys struct {
	dec               *json.Decoder
	fields            map[reflect.Type]map[string]reflect.Type // as jsonFields has them
	namespace, region string                                   // of the body, where its type has no field for them
	unknown           []string                                 // say something, and the type has no field for them
	unnamed           int                                      // unknown keys beyond maxNamed
}

// readBodyKeys reads the keys of a body that encoding/json has decoded into v.
func readBodyKeys(b []byte, v any) (*bodyKeys, error) {
	k := &bodyKeys{dec: json.NewDecoder(bytes.NewReader(b)), fields: map[reflect.Type]map[string]reflect.Type{}}
	if err := k.readValue(reflect.TypeOf(v), ""); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the request's body: %w", err)
	}
	return k, nil
}

// readValue reads the next value, which encoding/json has decoded into t. It reads a key that is
// there twice twice: encoding/json decodes both, one over the other.
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
	for k.dec.More() {
		var err error
		if isList {
			err = k.readValue(t.Elem(), path)
		} else {
			err = k.readMember(t, path)
		}
		if err != nil {
			return err
		}
	}
	_, err := k.dec.Token()
	return err
}

// readMember reads the next key of an object and its value.
func (k *bodyKeys) readMember(t reflect.Type, path string) error {
	token, err := k.dec.Token()
	if err != nil {
		return err
	}
	key, _ := token.(string)
	if t.Kind() == reflect.Map {
		return k.readValue(t.Elem(), path+key+".")
	}
	if k.fields[t] == nil {
		k.fields[t] = jsonFields(t)
	}
	if of, known := k.fields[t][foldedKey(key)]; known {
		return k.readValue(of, path+key+".")
	}
	var value json.RawMessage
	if err := k.dec.Decode(&value); err != nil {
		return err
	}
	switch {
	case path == "" && strings.EqualFold(key, "Namespace"):
		_ = json.Unmarshal(value, &k.namespace) // one that is no text names none
	case path == "" && strings.EqualFold(key, "Region"):
		_ = json.Unmarshal(value, &k.region)
	case !isIgnored(key) && saysSomething(value):
		k.addUnknown(path + key)
	}
	return nil
}

func (k *bodyKeys) addUnknown(path string) {
	if len(k.unknown) == maxNamed {
		k.unnamed++
		return
	}
	if len(path) > maxNamedAt {
		path = strings.ToValidUTF8(path[:maxNamedAt], "") + "…"
	}
	k.unknown = append(k.unknown, path)
}

// jsonFields are the types of a struct's fields by their keys, folded. A field of its own goes
// before one of an embedded struct.
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

// foldedKey makes keys equal that encoding/json takes for one: those that differ in case alone.
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

func isIgnored(key string) bool {
	for known := range ignoredKeys {
		if strings.EqualFold(known, key) {
			return true
		}
	}
	return false
}

// saysSomething reports whether a valid JSON value, without space around it, is more than null,
// false, 0, "", [] or {}.
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

// refuseUnknown refuses a body that asks for something that no endpoint acts on.
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

// checkScope refuses a body that is for another region or namespace than the request's
// parameters, where the endpoint itself reads neither from it.
func (a *API) checkScope(r *http.Request, k *bodyKeys) error {
	namespace := cmp.Or(r.URL.Query().Get("namespace"), fleet.DefaultNamespace)
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
