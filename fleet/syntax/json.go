package syntax

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// JSONDepth returns how deep objects and lists are nested, without decoding them: the caller
// refuses a deep text before a recursive decoder reads it.
func JSONDepth(data []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// maxKeyShown bounds the path of a key, in bytes.
const maxKeyShown = 200

// RepeatedKey returns the path of the first key that an object of a JSON text has twice, such as "Groups[0].Name"; "": there
// is none, or the text is no JSON. Decoders use one of both values, and say nothing. The text must not be nested deep.
func RepeatedKey(text []byte) string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	parts, _ := findRepeatedKey(dec)
	slices.Reverse(parts)
	path := strings.TrimPrefix(strings.Join(parts, ""), ".")
	if len(path) > maxKeyShown {
		path = strings.ToValidUTF8(path[:maxKeyShown], "") + "…"
	}
	return path
}

// findRepeatedKey returns the parts of the path of the first key that the next value of a decoder has twice, the last one first.
func findRepeatedKey(dec *json.Decoder) (parts []string, err error) {
	opening, err := dec.Token()
	if err != nil || opening != json.Delim('{') && opening != json.Delim('[') {
		return nil, err
	}
	seen := map[string]bool{}
	for i := 0; dec.More(); i++ {
		key := ""
		if opening == json.Delim('{') {
			token, err := dec.Token()
			if err != nil {
				return nil, err
			}
			if key = fmt.Sprint(token); seen[key] {
				return []string{"." + key}, nil
			}
			seen[key] = true
		}
		parts, err := findRepeatedKey(dec)
		switch {
		case err != nil:
			return nil, err
		case parts != nil && opening == json.Delim('{'):
			return append(parts, "."+key), nil
		case parts != nil:
			return append(parts, fmt.Sprintf("[%d]", i)), nil
		}
	}
	_, err = dec.Token()
	return nil, err
}
