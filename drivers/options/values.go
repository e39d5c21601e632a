package options

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// stringList returns a config value as a list of strings; nil gives none.
func stringList(value any) ([]string, error) {
	switch list := value.(type) {
	case nil:
		return nil, nil
	case []string:
		return list, nil
	case []any:
		out := make([]string, 0, len(list))
		for i, v := range list {
			s, ok := textOf(v)
			if !ok {
				return nil, fmt.Errorf("must be a list of strings, but element %d is %s", i+1, kindOf(v))
			}
			out = append(out, s)
		}
		return out, nil
	}
	return nil, fmt.Errorf("must be a list of strings, not %s", kindOf(value))
}

// textOf returns a config value as text; false: it has another type. Numbers and booleans are accepted, because
// people write args = ["--port", 8080].
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
		return strconv.FormatFloat(f, 'f', -1, 64), err == nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case int, int64, uint64:
		return fmt.Sprint(v), true
	}
	return "", false
}

// kindOf returns the type of a config value for people.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	}
	return "a number"
}
