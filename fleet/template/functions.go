package template

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"skerry/fleet"
	"skerry/internal/sorting"
)

type reason struct{ reason, hint string }

var (
	noConsul    = reason{"templates read keys of Consul alone", "read services with nomadService, and keys with key, keyExists, keyOrDefault, ls or tree"}
	noPrograms  = reason{"a template runs no program and writes no other file, as in Nomad", "let the task do it, or an artifact bring the file"}
	noDebugging = reason{"it does not exist here", "toJSONPretty shows a value"}
	noPKI       = reason{"no certificates are made for templates", "let the task ask Vault for one, with its token"}
)

// refused are functions of consul-template that do not work here.
var refused = map[string]reason{
	"keyExistsGet": noConsul, "safeLs": noConsul, "safeTree": noConsul, "service": noConsul, "services": noConsul, "node": noConsul, "nodes": noConsul,
	"datacenters": noConsul, "connect": noConsul, "caRoots": noConsul, "caLeaf": noConsul, "peerings": noConsul, "partitions": noConsul,
	"exportedServices": noConsul, "importedServices": noConsul, "byKey": noConsul, "byMeta": noConsul, "explode": noConsul,
	"pkiCert": noPKI,
	"plugin":  noPrograms, "writeToFile": noPrograms,
	"spew_dump": noDebugging, "spew_printf": noDebugging, "spew_sdump": noDebugging, "spew_sprintf": noDebugging,
}

// functionMap returns what a template can call.
func (r *renderer) functionMap() template.FuncMap {
	m := template.FuncMap{}
	for name := range refused {
		m[name] = func(...any) (string, error) { return "", errors.New("it is not supported") }
	}
	groups := []template.FuncMap{
		r.sourceFunctions(), r.valueFunctions(), r.searchFunctions(), r.sprigFunctions(), textFunctions, codecFunctions, listFunctions, mathFunctions,
	}
	for _, group := range groups {
		for name, f := range group {
			m[name] = f
		}
	}
	return m
}

// readEnv reads a variable of the task's environment.
func (r *renderer) readEnv(name string) (string, bool) {
	r.secret = r.secret || r.sources.SecretEnv != nil && r.sources.SecretEnv(name)
	return r.sources.Env(name)
}

// sourceFunctions are those that read something.
func (r *renderer) sourceFunctions() template.FuncMap {
	return template.FuncMap{
		"env": func(name string) string {
			v, _ := r.readEnv(name)
			return v
		},
		"envOrDefault": func(name, other string) string {
			if v, ok := r.readEnv(name); ok && v != "" {
				return v
			}
			return other
		},
		"mustEnv": func(name string) (string, error) {
			if v, ok := r.readEnv(name); ok {
				return v, nil
			}
			return "", fleet.Errorf(fleet.CodeInvalid, "the task has no variable %q", name)
		},
		"file": func(path string) (string, error) {
			r.reads = true
			text, secret, err := r.sources.File(path)
			r.secret = r.secret || secret
			return text, sourceError(err)
		},
		"nomadVar": r.nomadVar, "nomadVarExists": r.nomadVarExists, "nomadVarList": r.nomadVarList, "nomadVarListSafe": r.nomadVarList,
		"secret": r.readSecret, "secrets": r.listSecrets,
		"key": r.readKey, "keyExists": r.keyExists, "keyOrDefault": r.keyOrDefault, "ls": r.listKeys, "tree": r.listTree,
		"nomadService": r.nomadService, "nomadServices": r.nomadServices, "sockaddr": r.renderSockaddr,
		"timestamp": func(format ...string) (string, error) {
			now := r.sources.Now().UTC()
			switch {
			case len(format) > 1:
				return "", errors.New("timestamp has one argument at most")
			case len(format) == 0:
				return now.Format(time.RFC3339), nil
			case format[0] == "unix":
				return strconv.FormatInt(now.Unix(), 10), nil
			}
			return now.Format(format[0]), nil
		},
		"executeTemplate": func(name string, data ...any) (string, error) {
			if r.depth++; r.depth > 100 {
				return "", fleet.Errorf(fleet.CodeInvalid, "executeTemplate calls itself too often")
			}
			defer func() { r.depth-- }()
			var out output
			var dot any
			if len(data) > 0 {
				dot = data[0]
			}
			err := r.root.ExecuteTemplate(&out, name, dot)
			return out.String(), err
		},
	}
}

// valueFunctions are those that keep values, or make new ones of them.
func (r *renderer) valueFunctions() template.FuncMap {
	return template.FuncMap{
		"scratch": func() *Scratch { return &r.scratch },
		"mergeMap": func(first, second map[string]any) (map[string]any, error) {
			return r.mergeWeighed(first, second, false)
		},
		"mergeMapWithOverride": func(first, second map[string]any) (map[string]any, error) { return r.mergeWeighed(first, second, true) },
		"explodeMap": func(flat map[string]any) (map[string]any, error) {
			if _, err := r.weightOf(flat); err != nil {
				return nil, err
			}
			return explodeMap(flat)
		},
	}
}

// renderSockaddr renders a template of go-sockaddr, which chooses among the addresses of the machine.
func (r *renderer) renderSockaddr(args ...string) (string, error) {
	if r.sources.Addresses == nil {
		return "", sourceError(fleet.Errorf(fleet.CodeUnavailable, "this edge does not know its addresses"))
	}
	r.reads = true
	all, functions, err := r.sources.Addresses()
	if err != nil {
		return "", sourceError(err)
	}
	known := template.FuncMap{}
	for _, name := range []string{"print", "printf", "println", "html", "js", "urlquery"} {
		known[name] = textFunctions[name]
	}
	maps.Copy(known, functions)
	text := Text{Name: "sockaddr", Text: "{{ " + strings.Join(args, " ") + " }}", MissingKey: true}
	parsed, err := parseText(text, r, known)
	if err != nil {
		return "", err
	}
	var out output
	if err := parsed.Execute(&out, all); err != nil {
		return "", sourceError(trimError(err))
	}
	return out.String(), nil
}

// sourceError marks an error of a source that has no answer now.
func sourceError(err error) error {
	if err == nil || fleet.CodeOf(err) == fleet.CodeInvalid {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSource, err)
}

// nomadService returns the instances of a service: nomadService "NAME", or nomadService COUNT "KEY" "NAME" for some of
// them, always the same ones for a key.
func (r *renderer) nomadService(args ...any) ([]Service, error) {
	count, key := 0, ""
	switch len(args) {
	case 1:
	case 3:
		n, ok := args[0].(int)
		k, isText := args[1].(string)
		if !ok || !isText || n < 1 {
			return nil, errors.New("nomadService COUNT KEY NAME needs a positive number and a text")
		}
		count, key, args = n, k, args[2:]
	default:
		return nil, errors.New("nomadService has one argument or three")
	}
	name, ok := args[0].(string)
	if !ok || name == "" {
		return nil, errors.New("nomadService needs the name of a service")
	}
	tag := ""
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		tag, name = name[:at], name[at+1:]
	}
	r.reads = true
	list, err := r.sources.Services(name)
	if err != nil {
		return nil, sourceError(err)
	}
	var out []Service
	for _, s := range list {
		if s.Name == name && (tag == "" || slices.Contains(s.Tags, tag)) {
			out = append(out, s)
		}
	}
	rank := func(s Service) string {
		if count == 0 {
			return s.ID
		}
		sum := sha256.Sum256([]byte(key + "\x00" + s.ID))
		return string(sum[:])
	}
	sorting.Slice(out, func(a, b Service) int { return strings.Compare(rank(a), rank(b)) })
	if count > 0 && len(out) > count {
		out = out[:count]
	}
	return out, nil
}

// nomadServices returns the names of all services.
func (r *renderer) nomadServices() ([]ServiceName, error) {
	r.reads = true
	list, err := r.sources.Services("")
	if err != nil {
		return nil, sourceError(err)
	}
	tags := map[string][]string{}
	for _, s := range list {
		tags[s.Name] = append(tags[s.Name], s.Tags...)
	}
	var out []ServiceName
	for name, all := range tags {
		slices.Sort(all)
		out = append(out, ServiceName{name, slices.Compact(all)})
	}
	sorting.Slice(out, func(a, b ServiceName) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// short returns a text that is not too long.
func short(text string) (string, error) {
	if len(text) > MaxBytes {
		return "", errTooLarge
	}
	return text, nil
}

// fits returns an error where texts together are too long.
func fits(args []any) error {
	n := 0
	for _, a := range args {
		v := reflect.ValueOf(a)
		switch v.Kind() {
		case reflect.String, reflect.Slice, reflect.Map:
			n += v.Len()
		}
	}
	if n > MaxBytes {
		return errTooLarge
	}
	return nil
}

// printed returns a function of fmt whose result is not too long.
func printed(print func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		if err := fits(args); err != nil {
			return "", err
		}
		return short(print(args...))
	}
}

var textFunctions = template.FuncMap{
	"print": printed(fmt.Sprint), "println": printed(fmt.Sprintln),
	"printf": func(format string, args ...any) (string, error) {
		if err := fits(args); err != nil {
			return "", err
		}
		return short(fmt.Sprintf(format, args...))
	},
	"html": printed(template.HTMLEscaper), "js": printed(template.JSEscaper), "urlquery": printed(template.URLQueryEscaper),
	"toLower": strings.ToLower, "toUpper": strings.ToUpper,
	"toTitle":    titleWords("_'."),
	"trimSpace":  strings.TrimSpace,
	"trim":       func(cut, s string) string { return strings.Trim(s, cut) },
	"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
	"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	"split": func(sep, s string) []string {
		if s = strings.TrimSpace(s); s == "" {
			return nil
		}
		return strings.Split(s, sep)
	},
	"splitToMap": func(sep, middle, s string) map[string]string {
		m := map[string]string{}
		for _, part := range strings.Split(strings.TrimSpace(s), sep) {
			if key, value, ok := strings.Cut(part, middle); ok {
				m[key] = value
			}
		}
		return m
	},
	"join": func(sep string, list any) (string, error) {
		items, err := texts(list)
		if err != nil {
			return "", err
		}
		n := len(sep) * len(items)
		for _, s := range items {
			n += len(s)
		}
		if n > MaxBytes {
			return "", errTooLarge
		}
		return strings.Join(items, sep), nil
	},
	"replaceAll": func(from, to, s string) (string, error) {
		if n := strings.Count(s, from); len(s)+n*(len(to)-len(from)) > MaxBytes {
			return "", errTooLarge
		}
		return strings.ReplaceAll(s, from, to), nil
	},
	"regexMatch": func(pattern, s string) (bool, error) {
		re, err := regexp.Compile(pattern)
		return err == nil && re.MatchString(s), err
	},
	"regexReplaceAll": regexReplace,
	"indent": func(spaces int, s string) (string, error) {
		if spaces < 0 || (strings.Count(s, "\n")+1)*spaces+len(s) > MaxBytes {
			return "", errTooLarge
		}
		pad := strings.Repeat(" ", spaces)
		lines := strings.SplitAfter(s, "\n")
		for i, line := range lines {
			if line != "" && line != "\n" {
				lines[i] = pad + line
			}
		}
		return strings.Join(lines, ""), nil
	},
	"parseBool": func(s string) (bool, error) {
		if s == "" {
			return false, nil
		}
		return strconv.ParseBool(s)
	},
}

// regexReplace replaces the parts of a text that match.
func regexReplace(pattern, to, s string) (string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", err
	}
	if n := len(re.FindAllStringIndex(s, -1)); n*len(to) > MaxBytes {
		return "", errTooLarge
	}
	return short(re.ReplaceAllString(s, to))
}

// titleWords returns a function that writes the first letter of each word in upper case. Words have letters, digits
// and some other characters.
func titleWords(others string) func(string) string {
	return func(s string) string {
		begins := true
		return strings.Map(func(c rune) rune {
			if begins {
				c = unicode.ToTitle(c)
			}
			begins = !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(others, c)
			return c
		}, s)
	}
}

var codecFunctions = template.FuncMap{
	"base64Encode":    func(s string) (string, error) { return short(base64.StdEncoding.EncodeToString([]byte(s))) },
	"base64Decode":    decodeBase64(base64.StdEncoding),
	"base64URLEncode": func(s string) (string, error) { return short(base64.URLEncoding.EncodeToString([]byte(s))) },
	"base64URLDecode": decodeBase64(base64.URLEncoding),
	"md5sum": func(s string) string {
		sum := md5.Sum([]byte(s))
		return hex.EncodeToString(sum[:])
	},
	"sha256Hex": func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	},
	"hmacSHA256Hex": func(message, key string) string {
		h := hmac.New(sha256.New, []byte(key))
		h.Write([]byte(message))
		return hex.EncodeToString(h.Sum(nil))
	},
	"toJSON":                func(v any) (string, error) { return encodeJSON(v, "", true) },
	"toJSONPretty":          func(v any) (string, error) { return encodeJSON(v, "  ", true) },
	"toUnescapedJSON":       func(v any) (string, error) { return encodeJSON(v, "", false) },
	"toUnescapedJSONPretty": func(v any) (string, error) { return encodeJSON(v, "  ", false) },
	"toYAML": func(v any) (string, error) {
		b, err := yaml.Marshal(v)
		if err != nil {
			return "", err
		}
		return short(strings.TrimSuffix(string(b), "\n"))
	},
	"toTOML": func(v any) (string, error) {
		var out output
		err := toml.NewEncoder(&out).Encode(v)
		return strings.TrimSpace(out.String()), err
	},
	"parseJSON": func(s string) (any, error) {
		if s == "" {
			return map[string]any{}, nil
		}
		var v any
		err := json.Unmarshal([]byte(s), &v)
		return v, err
	},
	"parseYAML": func(s string) (any, error) {
		if s == "" {
			return map[string]any{}, nil
		}
		var v any
		err := yaml.Unmarshal([]byte(s), &v)
		return v, err
	},
}

func decodeBase64(e *base64.Encoding) func(string) (string, error) {
	return func(s string) (string, error) {
		b, err := e.DecodeString(s)
		return string(b), err
	}
}

func encodeJSON(v any, indent string, escape bool) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(escape)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return short(strings.TrimSuffix(b.String(), "\n"))
}
