package template

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/internal/sorting"
)

// Variable has the items of a variable, as nomadVar returns it.
type Variable map[string]string

// Item is one item of a variable.
type Item struct{ K, V string }

// Keys returns the names of the items, in order.
func (v Variable) Keys() []string { return slices.Sorted(maps.Keys(v)) }

// Values returns the values of the items, in the order of their names.
func (v Variable) Values() []string {
	out := make([]string, 0, len(v))
	for _, k := range v.Keys() {
		out = append(out, v[k])
	}
	return out
}

// Tuples returns the items, in the order of their names.
func (v Variable) Tuples() []Item {
	out := make([]Item, 0, len(v))
	for _, k := range v.Keys() {
		out = append(out, Item{k, v[k]})
	}
	return out
}

// VariablePath is a variable without its items, as nomadVarList returns it.
type VariablePath struct{ Path string }

// String returns the path.
func (p VariablePath) String() string { return p.Path }

// nomadVar returns the items of a variable. Without such a variable it has no answer.
func (r *renderer) nomadVar(path string) (Variable, error) {
	path, err := r.readablePath(path)
	if err != nil {
		return nil, err
	}
	items, ok := r.sources.Variable(path)
	if !ok {
		return nil, sourceError(fleet.Errorf(fleet.CodeUnavailable, "there is no variable %s on this edge", path))
	}
	r.secret = true
	return items, nil
}

// nomadVarExists reports whether there is a variable.
func (r *renderer) nomadVarExists(path string) (bool, error) {
	path, err := r.readablePath(path)
	if err != nil {
		return false, err
	}
	_, ok := r.sources.Variable(path)
	return ok, nil
}

// nomadVarList returns the variables that the task may read whose paths begin with a prefix ("": all of them).
func (r *renderer) nomadVarList(prefix ...string) ([]VariablePath, error) {
	if len(prefix) > 1 {
		return nil, fleet.Errorf(fleet.CodeInvalid, "nomadVarList has one argument at most")
	}
	r.reads = true
	var out []VariablePath
	for _, path := range r.sources.VariablePaths {
		if len(prefix) > 0 && !strings.HasPrefix(path, strings.Trim(prefix[0], "/")) {
			continue
		}
		if _, ok := r.sources.Variable(path); ok {
			out = append(out, VariablePath{path})
		}
	}
	sorting.Slice(out, func(a, b VariablePath) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// readablePath returns the path of a variable without slashes around it. It fails for one that the task may not read.
func (r *renderer) readablePath(path string) (string, error) {
	r.reads = true
	path = strings.Trim(path, "/")
	if !slices.Contains(r.sources.VariablePaths, path) {
		return "", fleet.Errorf(fleet.CodeInvalid, "the task may not read the variable %q: it may read %s", path, strings.Join(r.sources.VariablePaths, ", "))
	}
	return path, nil
}

// failurePlace is the template, line and column at the beginning of an error.
var failurePlace = regexp.MustCompile(`^[^\n]*?:\d+(:\d+)?: `)

// withoutSecrets returns the error of a rendering. The text of a function's error may have a value, so only its place stays
// if a variable or a secret was read before. A source that has no answer now stays one.
func (r *renderer) withoutSecrets(err error) error {
	if !r.secret {
		return err
	}
	place := failurePlace.FindString(err.Error())
	if errors.Is(err, ErrSource) && fleet.CodeOf(err) != fleet.CodeUnsupported {
		return sourceError(fleet.Errorf(fleet.CodeUnavailable, "%sa source has no answer; the reason is not shown because it may have a value of a variable or a secret that was read before", place))
	}
	return fleet.Errorf(fleet.CodeInvalid, "%sit failed after it had read a variable or a secret, and the reason is not shown because it may have a value of that", place)
}
