package placement

import (
	"strconv"
	"strings"
)

// unit is a unit of a device's attributes: it is factor times the base unit of its dimension.
type unit struct {
	dimension string
	factor    float64
}

// units are the units that Nomad's device attributes have.
var units = map[string]unit{
	"B": {"bytes", 1}, "kB": {"bytes", 1e3}, "KB": {"bytes", 1e3}, "MB": {"bytes", 1e6}, "GB": {"bytes", 1e9}, "TB": {"bytes", 1e12},
	"KiB": {"bytes", 1 << 10}, "MiB": {"bytes", 1 << 20}, "GiB": {"bytes", 1 << 30}, "TiB": {"bytes", 1 << 40},
	"B/s": {"rate", 1}, "kB/s": {"rate", 1e3}, "MB/s": {"rate", 1e6}, "GB/s": {"rate", 1e9},
	"KiB/s": {"rate", 1 << 10}, "MiB/s": {"rate", 1 << 20}, "GiB/s": {"rate", 1 << 30},
	"Hz": {"frequency", 1}, "MHz": {"frequency", 1e6}, "GHz": {"frequency", 1e9},
	"mW": {"power", 1e-3}, "W": {"power", 1}, "kW": {"power", 1e3},
}

// parseQuantity parses a number with a unit, such as "16 GiB" or "16GiB", into the base unit of its dimension.
func parseQuantity(text string) (value float64, dimension string, ok bool) {
	i := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '-' })
	if i < 1 {
		return 0, "", false
	}
	u, known := units[strings.TrimSpace(text[i:])]
	n, err := strconv.ParseFloat(text[:i], 64)
	if !known || err != nil {
		return 0, "", false
	}
	return n * u.factor, u.dimension, true
}

// quantities parses two quantities of the same dimension.
func quantities(l, r string) (x, y float64, ok bool) {
	x, in, okX := parseQuantity(l)
	y, as, okY := parseQuantity(r)
	return x, y, okX && okY && in == as
}

// equalQuantities reports whether two texts are the same amount, in whichever units: 1024 MiB is 1 GiB.
func equalQuantities(l, r string) bool {
	x, y, ok := quantities(l, r)
	return ok && x == y
}
