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

// unknownKeys finds the keys of a body that say something and that its type has no field for.
type unknownKeys struct {
	dec    *json.Decoder
	fields map[reflect.Type]map[string]reflect.Type // as jsonFields has them
	named  []string
	more   int
}

func (u *unknownKeys) add(path string) {
	if len(u.named) == maxNamed {
		u.more++
		return
	}
	if len(path) > maxNamedAt {
		path = strings.ToValidUTF8(path[:maxNamedAt], "") + "…"
	}
	u.named = append(u.named, path)
}

// value reads the next value, which encoding/json has decoded into t. A key that is there twice
// is looked at twice: encoding/json decodes both, one over the other.
func (u *unknownKeys) value(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := t.Kind()
	isObject, isList := kind == reflect.Struct || kind == reflect.Map, kind == reflect.Slice || kind == reflect.Array
	readsItself := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	if readsItself || !isObject && !isList {
		var skipped json.RawMessage
		return u.dec.Decode(&skipped)
	}
	if opening, err := u.dec.Token(); err != nil || opening != json.Delim('{') && opening != json.Delim('[') {
		return err // null, or bytes, which are text
	}
	for u.dec.More() {
		var err error
		if isList {
			err = u.value(t.Elem(), path)
		} else {
			err = u.member(t, path)
		}
		if err != nil {
			return err
		}
	}
	_, err := u.dec.Token()
	return err
}

// member reads the next key of an object and its value.
func (u *unknownKeys) member(t reflect.Type, path string) error {
	token, err := u.dec.Token()
	if err != nil {
		return err
	}
	key, _ := token.(string)
	if t.Kind() == reflect.Map {
		return u.value(t.Elem(), path+key+".")
	}
	if u.fields[t] == nil {
		u.fields[t] = jsonFields(t)
	}
	if of, known := u.fields[t][foldedKey(key)]; known {
		return u.value(of, path+key+".")
	}
	var said json.RawMessage
	if err := u.dec.Decode(&said); err != nil {
		return err
	}
	if !isIgnored(key) && saysSomething(said) {
		u.add(path + key)
	}
	return nil
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

// saysSomething reports whether a valid JSON value is more than null, false, 0, "", [] or {}.
func saysSomething(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	switch s := string(raw[:min(len(raw), 6)]); {
	case s == "null", s == "false", s == `""`:
		return false
	case raw[0] == '[', raw[0] == '{':
		return len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	return err != nil || n != 0
}

// refuseUnknownKeys refuses a body that asks for something that no endpoint acts on. The body
// has been decoded into v.
func refuseUnknownKeys(b []byte, v any) error {
	u := unknownKeys{dec: json.NewDecoder(bytes.NewReader(b)), fields: map[reflect.Type]map[string]reflect.Type{}}
	if err := u.value(reflect.TypeOf(v), ""); err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "read the request's body: %v", err)
	}
	if len(u.named) == 0 {
		return nil
	}
	list := strings.Join(u.named, ", ")
	if u.more > 0 {
		list += fmt.Sprintf(" and %d other keys", u.more)
	}
	return fleet.Errorf(fleet.CodeUnsupported, "read the request's body: nothing acts on %s", list).
		WithHint("leave it out, or mend its spelling: no key is passed over in silence")
}

// checkScope refuses a body that is for another region or namespace than the request's
// parameters, where the endpoint itself reads neither from it.
func (a *API) checkScope(r *http.Request, b []byte, v any) error {
	t := reflect.TypeOf(v).Elem()
	var said struct{ Region, Namespace string }
	if t.Kind() != reflect.Struct || json.Unmarshal(b, &said) != nil {
		return nil
	}
	fields := jsonFields(t)
	namespace := cmp.Or(r.URL.Query().Get("namespace"), fleet.DefaultNamespace)
	if _, reads := fields[foldedKey("Namespace")]; !reads && said.Namespace != "" && said.Namespace != namespace {
		return fleet.Errorf(fleet.CodeInvalid, "read the request's body: it is for namespace %q, and the request for %q", said.Namespace, namespace).
			WithHint("give the namespace as the parameter namespace")
	}
	own := a.cfg.Cluster.Self().Region
	if _, reads := fields[foldedKey("Region")]; !reads && said.Region != "" && said.Region != own && said.Region != fleet.DefaultRegion {
		return fleet.Errorf(fleet.CodeInvalid, "read the request's body: no path to region %q: this cluster's is %q", said.Region, own).WithHint(oneRegion)
	}
	return nil
}
