package diff

import (
	"fmt"
	"slices"
)

// diffedLists are lists of objects, of which each one that differs is shown by itself.
var diffedLists = map[string]string{
	"Constraints": "Constraint", "Affinities": "Affinity", "Spreads": "Spread", "Networks": "Network", "Services": "Service",
	"Artifacts": "Artifact", "Templates": "Template", "VolumeMounts": "VolumeMount", "Identities": "Identity",
	"ScalingPolicies": "ScalingPolicy", "Actions": "Action", "Secrets": "Secret",
}

// diffKeyFields is by which of their fields objects of a list are known: those of the same are
// compared field by field. Of networks there is hardly ever more than one.
var diffKeyFields = map[string]string{
	"Actions": "Name", "Services": "Name", "Secrets": "Name", "Identities": "Name", "Templates": "DestPath",
	"VolumeMounts": "Destination", "Spreads": "Attribute", "Networks": "",
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// elementsNotIn are the objects of a list that another one does not have. Each is written as text
// once: lists are as long as a request's body lets them be.
func elementsNotIn(list, other []any) []any {
	there := make(map[string]bool, len(other))
	for _, e := range other {
		there[canonical(e)] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(e any) bool { return there[canonical(e)] })
}

// diffKnown compares those objects of two lists that are known by the same value of a
// field, one of each by the other in their order, and returns the rest.
func diffKnown(name, field string, was, is []any) (edited []Object, old, updated []any) {
	known := func(e any) string { m, _ := e.(map[string]any); return scalar(m[field]) }
	rest := map[string][]any{}
	for _, e := range is {
		rest[known(e)] = append(rest[known(e)], e)
	}
	paired := map[string]int{}
	for _, e := range was {
		by := known(e)
		if len(rest[by]) == 0 {
			old = append(old, e)
			continue
		}
		called := name
		if field != "" {
			called = fmt.Sprintf("%s[%s]", name, by)
		}
		// A list that is empty in the one and not there in the other is no difference.
		if f := diffFields(flatten("", e), flatten("", rest[by][0])); len(f) > 0 {
			edited = append(edited, Object{Type: Edited, Name: called, Fields: f})
		}
		rest[by] = rest[by][1:]
		paired[by]++
	}
	for _, e := range is {
		if by := known(e); paired[by] > 0 {
			paired[by]--
			continue
		}
		updated = append(updated, e)
	}
	return edited, old, updated
}

// diffLists shows the objects that are in one of two lists alone: one that changed is
// deleted and added.
func diffLists(name string, was, is []any) []Object {
	var diffs []Object
	for _, e := range was {
		diffs = append(diffs, Object{Type: Deleted, Name: name, Fields: diffFields(flatten("", e), nil)})
	}
	for _, e := range is {
		diffs = append(diffs, Object{Type: Added, Name: name, Fields: diffFields(nil, flatten("", e))})
	}
	return diffs
}
