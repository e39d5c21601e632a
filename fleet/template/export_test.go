package template

import (
	"maps"
	"slices"
)

// Functions returns the names of the functions that work, and of those that do not.
func Functions() (works, refuses []string) {
	all := new(renderer).functionMap()
	for name := range refused {
		delete(all, name)
	}
	return slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(refused))
}
