package syntax

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
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
	if !mayRepeatKey(text) {
		return ""
	}
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

// maxPlainKeys is how many keys of one object mayRepeatKey compares with each other.
const maxPlainKeys = 64

// mayRepeatKey reports whether an object of a JSON text may have a key twice. It is much faster than findRepeatedKey, and
// also says so of an object with more than maxPlainKeys, of keys with escapes or beyond ASCII, and of some texts that are no JSON.
func mayRepeatKey(text []byte) bool {
	var keys [][]byte // of all objects around the current place, the outermost first
	var begins []int  // where in keys those of each object or list around it begin
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			begins = append(begins, len(keys))
		case '}', ']':
			if len(begins) == 0 {
				return true
			}
			keys, begins = keys[:begins[len(begins)-1]], begins[:len(begins)-1]
		case '"':
			quoted, plain := readQuoted(text[i+1:])
			i += len(quoted) + 1
			rest := bytes.TrimLeft(text[min(i+1, len(text)):], " \t\r\n")
			if len(rest) > 0 && rest[0] != ':' {
				continue // it is a value
			}
			if !plain || len(begins) == 0 || len(rest) == 0 {
				return true
			}
			own := keys[begins[len(begins)-1]:]
			if len(own) == maxPlainKeys || slices.ContainsFunc(own, func(k []byte) bool { return bytes.Equal(k, quoted) }) {
				return true
			}
			keys = append(keys, quoted)
		}
	}
	return false
}

// readQuoted returns the text up to the quote that ends it, and whether all of it is ASCII without escapes.
func readQuoted(text []byte) (quoted []byte, plain bool) {
	plain = true
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[:i], plain
		case c == '\\':
			i++
			plain = false
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return text, false
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
				return []string{"." + cmp.Or(key, `""`)}, nil
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
