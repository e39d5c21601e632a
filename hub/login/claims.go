package login

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"skerry/fleet"
)

// claims are the mapped claims of somebody who logs in, as selectors see them.
type claims struct {
	Value map[string]string   `bexpr:"value"`
	List  map[string][]string `bexpr:"list"`
}

// mapClaims returns those of all claims that an auth method maps. Claims that are missing are left out.
func mapClaims(conf *fleet.ACLAuthMethodConfig, all map[string]any) (claims, error) {
	mapped := claims{map[string]string{}, map[string][]string{}}
	for _, source := range slices.Sorted(maps.Keys(conf.ClaimMappings)) {
		found := findClaim(all, source)
		if found == nil {
			continue
		}
		text, ok := claimText(found)
		if !ok {
			return mapped, fleet.Errorf(fleet.CodeForbidden, "the claim %q is neither a text, a number nor a boolean", source)
		}
		mapped.Value[conf.ClaimMappings[source]] = text
	}
	for _, source := range slices.Sorted(maps.Keys(conf.ListClaimMappings)) {
		found := findClaim(all, source)
		if found == nil {
			continue
		}
		items, isList := found.([]any)
		if !isList {
			items = []any{found}
		}
		list := []string{}
		for _, item := range items {
			text, ok := claimText(item)
			if !ok {
				return mapped, fleet.Errorf(fleet.CodeForbidden, "an item of the claim %q is neither a text, a number nor a boolean", source)
			}
			if text != "" {
				list = append(list, text)
			}
		}
		mapped.List[conf.ListClaimMappings[source]] = list
	}
	return mapped, nil
}

// findClaim returns a claim by its name, or by a JSON pointer (RFC 6901), which begins with a slash; nil: there is none.
func findClaim(all map[string]any, source string) any {
	if !strings.HasPrefix(source, "/") {
		return all[source]
	}
	at := any(all)
	for _, part := range strings.Split(source[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch in := at.(type) {
		case map[string]any:
			at = in[part]
		case []any:
			i, err := strconv.ParseUint(part, 10, 31)
			if err != nil || int(i) >= len(in) {
				return nil
			}
			at = in[i]
		default:
			return nil
		}
	}
	return at
}

// claimText returns a claim as text. Numbers are whole ones, as in Nomad.
func claimText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return strconv.FormatInt(n, 10), true
		}
		f, err := v.Float64()
		if err != nil || math.Abs(f) >= 1<<63 {
			return "", false
		}
		return strconv.FormatInt(int64(f), 10), true
	}
	return "", false
}

// expandTemplate replaces each ${NAME} of a text by its value. $${ stands for ${ itself.
func expandTemplate(text string, values map[string]string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", fleet.Errorf(fleet.CodeInvalid, "%q has no end: write ${value.NAME}", "${"+rest)
		}
		value, known := values[strings.TrimSpace(name)]
		if !known {
			return "", fleet.Errorf(fleet.CodeInvalid, "${%s} is unknown", name).
				WithHint("names are %s, after the ClaimMappings of the auth method", strings.Join(slices.Sorted(maps.Keys(values)), ", "))
		}
		out.WriteString(before + value)
		text = after
	}
}
