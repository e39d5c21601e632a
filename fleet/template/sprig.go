package template

import (
	"cmp"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"skerry/fleet"
)

// sprigPrefix is in front of the names of sprig's functions, as in consul-template.
const sprigPrefix = "sprig_"

// sprigFunctions are functions of sprig whose result depends on nothing but their arguments, and that change none of
// them: neither set and unset, nor those with times, random numbers, keys and certificates.
func (r *renderer) sprigFunctions() template.FuncMap {
	named := template.FuncMap{}
	for _, group := range []template.FuncMap{sprigTexts, sprigNumbers, sprigChoices, sprigPatterns, r.sprigLists(), r.sprigMaps()} {
		for name, f := range group {
			named[sprigPrefix+name] = f
		}
	}
	return named
}

var sprigTexts = template.FuncMap{
	"upper": strings.ToUpper, "lower": strings.ToLower, "title": titleWords("_"), "trim": strings.TrimSpace,
	"trimAll":    func(cut, s string) string { return strings.Trim(s, cut) },
	"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
	"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	"nospace":    func(s string) string { return strings.Join(strings.Fields(s), "") },
	"trunc": func(n int, s string) string {
		switch {
		case n < 0 && len(s)+n > 0:
			return s[len(s)+n:]
		case n >= 0 && len(s) > n:
			return s[:n]
		}
		return s
	},
	"substr": func(from, to int, s string) (string, error) {
		if to < 0 || to > len(s) {
			to = len(s)
		}
		if from = max(from, 0); from > to {
			return "", fmt.Errorf("substr: the text ends before %d", from)
		}
		return s[from:to], nil
	},
	"repeat": func(n int, s string) (string, error) {
		if n < 0 || len(s) > 0 && n > MaxBytes/len(s) {
			return "", errTooLarge
		}
		return strings.Repeat(s, n), nil
	},
	"replace":   textFunctions["replaceAll"],
	"contains":  func(part, s string) bool { return strings.Contains(s, part) },
	"hasPrefix": func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
	"hasSuffix": func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
	"quote": func(list ...any) (string, error) {
		return joinShort(" ", list, func(v any) string { return strconv.Quote(textOf(v)) })
	},
	"squote": func(list ...any) (string, error) {
		return joinShort(" ", list, func(v any) string { return "'" + textOf(v) + "'" })
	},
	"cat":       func(list ...any) (string, error) { return joinShort(" ", list, textOf) },
	"join":      func(sep string, list any) (string, error) { return joinShort(sep, elements(list), textOf) },
	"indent":    func(spaces int, s string) (string, error) { return indentAll("", spaces, s) },
	"nindent":   func(spaces int, s string) (string, error) { return indentAll("\n", spaces, s) },
	"splitList": func(sep, s string) []string { return strings.Split(s, sep) },
	"sortAlpha": func(list any) []string {
		var sorted []string
		for _, v := range elements(list) {
			if v != nil {
				sorted = append(sorted, textOf(v))
			}
		}
		slices.Sort(sorted)
		return sorted
	},
	"toString":  func(v any) (string, error) { return joinShort("", []any{v}, textOf) },
	"sha256sum": codecFunctions["sha256Hex"],
	"sha1sum": func(s string) string {
		sum := sha1.Sum([]byte(s))
		return hex.EncodeToString(sum[:])
	},
	"b64enc": codecFunctions["base64Encode"],
	"b64dec": decodeBase64(base64.StdEncoding),
	"base":   path.Base, "dir": path.Dir, "clean": path.Clean, "ext": path.Ext,
	"fromJson": func(s string) any {
		var v any
		if json.Unmarshal([]byte(s), &v) != nil {
			return nil
		}
		return v
	},
	"toJson": codecFunctions["toJSON"], "toPrettyJson": codecFunctions["toJSONPretty"], "toRawJson": codecFunctions["toUnescapedJSON"],
}

var sprigNumbers = template.FuncMap{
	"int": func(v any) int { return int(toInt64(v)) }, "int64": toInt64, "float64": toFloat64, "atoi": func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0
		}
		return n
	},
	"add1": func(v any) int64 { return toInt64(v) + 1 },
	"add": func(list ...any) (sum int64) {
		for _, v := range list {
			sum += toInt64(v)
		}
		return sum
	},
	"mul": func(first any, list ...any) int64 {
		product := toInt64(first)
		for _, v := range list {
			product *= toInt64(v)
		}
		return product
	},
	"sub": func(a, b any) int64 { return toInt64(a) - toInt64(b) },
	"div": func(a, b any) (int64, error) {
		if toInt64(b) == 0 {
			return 0, errors.New("division by zero")
		}
		return toInt64(a) / toInt64(b), nil
	},
	"mod": func(a, b any) (int64, error) {
		if toInt64(b) == 0 {
			return 0, errors.New("division by zero")
		}
		return toInt64(a) % toInt64(b), nil
	},
	"max": func(first any, list ...any) int64 {
		most := toInt64(first)
		for _, v := range list {
			most = max(most, toInt64(v))
		}
		return most
	},
	"min": func(first any, list ...any) int64 {
		least := toInt64(first)
		for _, v := range list {
			least = min(least, toInt64(v))
		}
		return least
	},
	"ceil": func(v any) float64 { return math.Ceil(toFloat64(v)) }, "floor": func(v any) float64 { return math.Floor(toFloat64(v)) },
	"until": func(to int) ([]int, error) {
		if to < 0 {
			return countUp(0, to, -1)
		}
		return countUp(0, to, 1)
	},
	"untilStep": countUp,
}

var sprigChoices = template.FuncMap{
	"empty": isEmpty,
	"default": func(other any, given ...any) any {
		if len(given) == 0 || isEmpty(given[0]) {
			return other
		}
		return given[0]
	},
	"coalesce": func(list ...any) any {
		for _, v := range list {
			if !isEmpty(v) {
				return v
			}
		}
		return nil
	},
	"ternary": func(yes, no any, condition bool) any {
		if condition {
			return yes
		}
		return no
	},
	"all":  func(list ...any) bool { return !slices.ContainsFunc(list, isEmpty) },
	"any":  func(list ...any) bool { return slices.ContainsFunc(list, func(v any) bool { return !isEmpty(v) }) },
	"fail": func(message string) (string, error) { return "", fleet.Errorf(fleet.CodeInvalid, "%s", message) },
}

var sprigPatterns = template.FuncMap{
	"regexMatch": textFunctions["regexMatch"],
	"regexFind": func(pattern, s string) (string, error) {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return "", err
		}
		return re.FindString(s), nil
	},
	"regexFindAll": func(pattern, s string, n int) ([]string, error) {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		return re.FindAllString(s, n), nil
	},
	"regexSplit": func(pattern, s string, n int) ([]string, error) {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		return re.Split(s, n), nil
	},
	"regexReplaceAll": func(pattern, s, to string) (string, error) { return regexReplace(pattern, to, s) },
}

// sprigLists are the functions that make lists.
func (r *renderer) sprigLists() template.FuncMap {
	weighed := func(list []any) ([]any, error) {
		_, err := r.weightOf(list)
		return list, err
	}
	return template.FuncMap{
		"list": func(list ...any) ([]any, error) { return weighed(list) },
		"first": func(list any) any {
			if l := elements(list); len(l) > 0 {
				return l[0]
			}
			return nil
		},
		"last": func(list any) any {
			if l := elements(list); len(l) > 0 {
				return l[len(l)-1]
			}
			return nil
		},
		"rest":    func(list any) []any { l := elements(list); return l[min(1, len(l)):] },
		"initial": func(list any) []any { l := elements(list); return l[:max(0, len(l)-1)] },
		"append":  func(list, v any) ([]any, error) { return weighed(append(elements(list), v)) },
		"prepend": func(list, v any) ([]any, error) { return weighed(append([]any{v}, elements(list)...)) },
		"concat": func(lists ...any) ([]any, error) {
			if _, err := r.weightOf(lists...); err != nil {
				return nil, err
			}
			var all []any
			for _, list := range lists {
				all = append(all, elements(list)...)
			}
			return all, nil
		},
		"reverse": func(list any) []any {
			l := elements(list)
			slices.Reverse(l)
			return l
		},
		"compact": func(list any) []any { return slices.DeleteFunc(elements(list), isEmpty) },
		"uniq": func(list any) (kept []any, err error) {
			for _, v := range elements(list) {
				if err := r.countCompared(len(kept)); err != nil {
					return nil, err
				}
				if !hasValue(kept, v) {
					kept = append(kept, v)
				}
			}
			return kept, nil
		},
		"without": func(list any, leave ...any) (kept []any, err error) {
			all := elements(list)
			if err := r.countCompared(len(all) * len(leave)); err != nil {
				return nil, err
			}
			return slices.DeleteFunc(all, func(v any) bool { return hasValue(leave, v) }), nil
		},
		"has": func(v, list any) (bool, error) {
			all := elements(list)
			return hasValue(all, v), r.countCompared(len(all))
		},
	}
}

// sprigMaps are the functions that make maps, or look into them. The order of keys and values is that of the keys: a
// template renders the same text each time.
func (r *renderer) sprigMaps() template.FuncMap {
	weighed := func(m map[string]any) (map[string]any, error) {
		_, err := r.weightOf(m)
		return m, err
	}
	merge := func(override bool) func(first map[string]any, others ...map[string]any) (map[string]any, error) {
		return func(first map[string]any, others ...map[string]any) (map[string]any, error) {
			for _, other := range others {
				var err error
				if first, err = r.mergeWeighed(first, other, override); err != nil {
					return nil, err
				}
			}
			return first, nil
		}
	}
	return template.FuncMap{
		"dict": func(list ...any) (map[string]any, error) {
			m := map[string]any{}
			for i := 0; i < len(list); i += 2 {
				m[textOf(list[i])] = ""
				if i+1 < len(list) {
					m[textOf(list[i])] = list[i+1]
				}
			}
			return weighed(m)
		},
		"get": func(m map[string]any, key string) any {
			if v, ok := m[key]; ok {
				return v
			}
			return ""
		},
		"hasKey": func(m map[string]any, key string) bool {
			_, ok := m[key]
			return ok
		},
		"keys": func(list ...map[string]any) (keys []string) {
			for _, m := range list {
				keys = append(keys, slices.Sorted(maps.Keys(m))...)
			}
			return keys
		},
		"values": func(m map[string]any) (values []any) {
			for _, key := range slices.Sorted(maps.Keys(m)) {
				values = append(values, m[key])
			}
			return values
		},
		"pick": func(m map[string]any, keys ...string) map[string]any {
			picked := map[string]any{}
			for _, key := range keys {
				if v, ok := m[key]; ok {
					picked[key] = v
				}
			}
			return picked
		},
		"omit": func(m map[string]any, keys ...string) map[string]any {
			kept := map[string]any{}
			maps.Copy(kept, m)
			for _, key := range keys {
				delete(kept, key)
			}
			return kept
		},
		"merge": merge(false), "mergeOverwrite": merge(true),
		"dig": func(path ...any) (any, error) {
			if len(path) < 3 {
				return nil, errors.New("dig needs keys, a default and a map")
			}
			at, other := path[len(path)-1], path[len(path)-2]
			for _, key := range path[:len(path)-2] {
				m, ok := at.(map[string]any)
				if !ok {
					return nil, fmt.Errorf("dig: the value above %v is no map", key)
				}
				if at, ok = m[textOf(key)]; !ok {
					return other, nil
				}
			}
			return at, nil
		},
	}
}

// mergeWeighed merges two maps that are not too large together.
func (r *renderer) mergeWeighed(first, second map[string]any, override bool) (map[string]any, error) {
	if _, err := r.weightOf(first, second); err != nil {
		return nil, err
	}
	return mergeMaps(first, second, override), nil
}

// textOf returns a value as text.
func textOf(v any) string {
	switch t := v.(type) {
	case string:
		return t
	case error:
		return t.Error()
	}
	return fmt.Sprint(v)
}

// joinShort formats and joins the values that are not nil. It fails if the result is longer than MaxBytes.
func joinShort(sep string, list []any, format func(any) string) (string, error) {
	var parts []string
	n := 0
	for _, v := range list {
		if v == nil {
			continue
		}
		part := format(v)
		if n += len(part) + len(sep); n > MaxBytes {
			return "", errTooLarge
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, sep), nil
}

// indentAll puts spaces before each line, the first one too.
func indentAll(before string, spaces int, s string) (string, error) {
	if spaces < 0 || spaces > MaxBytes || (strings.Count(s, "\n")+1)*spaces+len(s) > MaxBytes {
		return "", errTooLarge
	}
	pad := strings.Repeat(" ", spaces)
	return before + pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
}

// elements returns a new list of a list's elements. A value that is no list is the only element.
func elements(list any) []any {
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		if list == nil {
			return nil
		}
		return []any{list}
	}
	out := make([]any, v.Len())
	for i := range out {
		out[i] = v.Index(i).Interface()
	}
	return out
}

// hasValue reports whether a list has a value of the same type and content.
func hasValue(list []any, v any) bool {
	return slices.ContainsFunc(list, func(other any) bool { return reflect.DeepEqual(other, v) })
}

// toInt64 returns a value as a whole number, or 0 if it is no number.
func toInt64(v any) int64 {
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return r.Int()
	case r.CanUint():
		return int64(r.Uint())
	case r.CanFloat():
		return int64(r.Float())
	case r.Kind() == reflect.Bool && r.Bool():
		return 1
	case r.Kind() == reflect.String:
		n, err := strconv.ParseInt(r.String(), 0, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return 0
}

// toFloat64 returns a value as a number, or 0 if it is no number.
func toFloat64(v any) float64 {
	r := reflect.ValueOf(v)
	if r.CanFloat() {
		return r.Float()
	}
	if r.Kind() == reflect.String {
		n, err := strconv.ParseFloat(r.String(), 64)
		if err != nil {
			return 0
		}
		return n
	}
	return float64(toInt64(v))
}

// countUp returns the numbers from one up or down to another.
func countUp(from, to, step int) ([]int, error) {
	if way := cmp.Compare(to, from); way == 0 || way != cmp.Compare(step, 0) {
		return nil, nil
	}
	if n := math.Abs(float64(to)-float64(from)) / math.Abs(float64(step)); n > maxLoop {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%d to %d are too many numbers: at most %d numbers are allowed", from, to, maxLoop)
	}
	list := []int{}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		list = append(list, i)
	}
	return list, nil
}
