package syntax

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// RepeatedKey returns the path of the first key that an object of a JSON text has twice, such as "Groups[0].Name"; "": there
// is none, or the text is no JSON. Decoders use one of both values, and say nothing. The text must not be nested deep.
func RepeatedKey(text []byte) string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	found, _ := repeatedKeyIn(dec, "")
	return found
}

// repeatedKeyIn is RepeatedKey for the next value of a decoder, whose path is given.
func repeatedKeyIn(dec *json.Decoder, path string) (found string, err error) {
	opening, err := dec.Token()
	if err != nil || opening != json.Delim('{') && opening != json.Delim('[') {
		return "", err
	}
	seen := map[string]bool{}
	for i := 0; dec.More(); i++ {
		at := fmt.Sprintf("%s[%d]", path, i)
		if opening == json.Delim('{') {
			token, err := dec.Token()
			if err != nil {
				return "", err
			}
			key := fmt.Sprint(token)
			if at = strings.TrimPrefix(path+"."+key, "."); seen[key] {
				return at, nil
			}
			seen[key] = true
		}
		if found, err := repeatedKeyIn(dec, at); found != "" || err != nil {
			return found, err
		}
	}
	_, err = dec.Token()
	return "", err
}
