// Package sorting sorts slices of structs with little code. The compiler makes [slices.SortFunc] anew for each type of
// element, 20 KiB each time; programs on an edge count each of them in memory.
package sorting

import "sort"

// Slice sorts the slice as [slices.SortFunc] does: the order of equal elements is undefined.
func Slice[E any](list []E, compare func(a, b E) int) {
	sort.Slice(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}
