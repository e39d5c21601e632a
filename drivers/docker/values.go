package docker

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// reader reads values of a config block and collects errors.
type reader struct {
	wrong []string
	// early says that ${…} is not replaced yet, so any value with ${…} is accepted.
	early bool
}

// isOpen reports whether a value contains ${…} that is not replaced yet.
func (r *reader) isOpen(value any) bool {
	s, ok := value.(string)
	return ok && r.early && strings.Contains(s, "${")
}

// rejectValue collects an error for a value of the wrong form.
func (r *reader) rejectValue(key, must string, value any) {
	r.wrong = append(r.wrong, fmt.Sprintf("%s must be %s, not %s", key, must, kindOf(value)))
}

// readText reads a string. Numbers and booleans are accepted, because people write labels { port = 8080 }.
func (r *reader) readText(key string, value any) string {
	s, ok := textOf(value)
	switch {
	case !ok:
		r.rejectValue(key, "a string", value)
	case strings.ContainsRune(s, 0):
		r.wrong = append(r.wrong, key+" contains a NUL byte")
	}
	return s
}

// readFlag reads true or false, also as text.
func (r *reader) readFlag(key string, value any) bool {
	if r.isOpen(value) {
		return false
	}
	switch v := value.(type) {
	case bool:
		return v
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b
		}
	}
	r.rejectValue(key, "true or false", value)
	return false
}

// readInteger reads a whole number from least to most, also as text.
func (r *reader) readInteger(key string, value any, least, most int64) int64 {
	if r.isOpen(value) {
		return least
	}
	s, ok := textOf(value)
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case !ok || err != nil:
		r.rejectValue(key, "a whole number", value)
	case n < least || n > most:
		r.wrong = append(r.wrong, fmt.Sprintf("%s is %d, and must be from %d to %d", key, n, least, most))
	}
	return min(max(n, least), most)
}

// readBytes reads an amount of memory: a whole number, and b, k, m or g for bytes, KiB, MiB or GiB.
func (r *reader) readBytes(key string, value any) int64 {
	if r.isOpen(value) {
		return 0
	}
	s, ok := textOf(value)
	number, shift := strings.ToLower(s), 0
	for unit, bits := range map[string]int{"b": 0, "k": 10, "m": 20, "g": 30} {
		if digits, has := strings.CutSuffix(number, unit); has {
			number, shift = digits, bits
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 0 || n > maxMemoryBytes>>shift {
		r.rejectValue(key, "an amount such as 512m, with b, k, m or g", value)
		return 0
	}
	return n << shift
}

// maxMemoryBytes is the largest amount of memory in a config block.
const maxMemoryBytes = 1 << 50

// readList reads a list of strings. nil gives none.
func (r *reader) readList(key string, value any) []string {
	switch v := value.(type) {
	case nil:
		return nil
	case []string:
		return slices.Clone(v)
	case []any:
		out := make([]string, 0, len(v))
		for i, element := range v {
			out = append(out, r.readText(fmt.Sprintf("%s[%d]", key, i), element))
		}
		return out
	}
	r.rejectValue(key, "a list of strings", value)
	return nil
}

// readBlocks reads a block that may occur more than once: a map, or a list of maps.
func (r *reader) readBlocks(key string, value any) []map[string]any {
	switch v := value.(type) {
	case nil:
		return nil
	case map[string]any:
		return []map[string]any{v}
	case []map[string]any:
		return v
	case []any:
		out := make([]map[string]any, 0, len(v))
		for _, element := range v {
			m, ok := element.(map[string]any)
			if !ok {
				r.rejectValue(key, "a block", element)
				continue
			}
			out = append(out, m)
		}
		return out
	}
	r.rejectValue(key, "a block", value)
	return nil
}

// readBlock reads a block that may occur once.
func (r *reader) readBlock(key string, value any) map[string]any {
	found := r.readBlocks(key, value)
	switch len(found) {
	case 0:
		return nil
	case 1:
		return found[0]
	}
	r.wrong = append(r.wrong, key+" is written more than once")
	return found[0]
}

// readTexts reads a map of strings, written as one block or several.
func (r *reader) readTexts(key string, value any) map[string]string {
	out := map[string]string{}
	for _, m := range r.readBlocks(key, value) {
		for _, k := range sortedKeys(m) {
			out[k] = r.readText(key+"."+k, m[k])
		}
	}
	return out
}

// readKeys calls the function of each key of a block. Keys without a function are rejected by name.
func (r *reader) readKeys(path string, block map[string]any, known map[string]func(key string, value any)) {
	for _, k := range sortedKeys(block) {
		read, ok := known[k]
		if !ok {
			r.wrong = append(r.wrong, fmt.Sprintf("unknown key %q", path+k))
			continue
		}
		read(path+k, block[k])
	}
}

// oneOf reads a string that must be one of several.
func (r *reader) oneOf(key string, value any, of ...string) string {
	s := r.readText(key, value)
	if !r.isOpen(value) && !slices.Contains(of, s) {
		r.wrong = append(r.wrong, fmt.Sprintf("%s is %q, and must be one of %s", key, s, strings.Join(of, ", ")))
	}
	return s
}

// textOf returns a config value as text; false: it has another type.
func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return strconv.FormatInt(whole, 10), true
		}
		f, err := v.Float64()
		return strconv.FormatFloat(f, 'f', -1, 64), err == nil && !math.IsInf(f, 0)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case int, int64, uint64:
		return fmt.Sprint(v), true
	}
	return "", false
}

// kindOf returns the type of a config value for people.
func kindOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(v)
	case bool:
		return "true or false"
	case []any, []string, []map[string]any:
		return "a list"
	case map[string]any:
		return "a block"
	}
	return "a number"
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
