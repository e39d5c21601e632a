package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skerry/fleet"
)

// version is a parsed version: numbers (at least three, missing ones being 0), then
// what stands before its release ("beta", "1"). Build metadata is dropped, for it
// never decides.
type version struct {
	segments []uint64
	given    int // how many of the numbers were written down
	pre      []string
}

// maxVersionLength bounds what parseVersion looks at.
const maxVersionLength = 256

// parseVersion reads "1.2.3-beta.1+linux", of any number of segments, maybe with a
// leading v. Unless strict, the hyphen before a pre-release may be missing
// ("1.2rc1").
func parseVersion(s string, strict bool) (version, error) {
	bad := func() (version, error) { return version{}, fmt.Errorf("malformed version %q", s) }
	if len(s) > maxVersionLength {
		return version{}, fmt.Errorf("the version has %d characters, at most %d are allowed", len(s), maxVersionLength)
	}
	rest, build, hasBuild := strings.Cut(strings.TrimPrefix(strings.TrimSpace(s), "v"), "+")
	if hasBuild && !identifiers(build) {
		return bad()
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	numbers, pre := rest, ""
	if end >= 0 {
		numbers, pre = rest[:end], rest[end:]
		if pre[0] != '-' && strict {
			return bad()
		}
		pre = strings.TrimPrefix(pre, "-")
		if !identifiers(pre) {
			return bad()
		}
	}
	var v version
	for part := range strings.SplitSeq(numbers, ".") {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return bad()
		}
		v.segments = append(v.segments, n)
	}
	v.given = len(v.segments)
	for len(v.segments) < 3 {
		v.segments = append(v.segments, 0)
	}
	if pre != "" {
		v.pre = strings.Split(pre, ".")
	}
	return v, nil
}

// identifiers reports whether s is a dotted list of letters, digits and hyphens.
func identifiers(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" {
			return false
		}
		for _, r := range part {
			if r != '-' && r != '~' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
				return false
			}
		}
	}
	return true
}

// compareVersions orders versions: by number, missing ones being 0, then a pre-release
// before its release, then pre-releases by their parts. Where one has more numbers
// than the other (3.3.0 and 3.3.0.0-1) the pre-release does not count: that is how
// Nomad's version library orders them, and job files rely on it.
func (v version) compareVersions(o version) int {
	for i := range max(len(v.segments), len(o.segments)) {
		if a, b := v.segmentOrZero(i), o.segmentOrZero(i); a != b {
			if a < b {
				return -1
			}
			return 1
		}
	}
	switch {
	case len(v.segments) != len(o.segments):
		return 0
	case len(v.pre) == 0 && len(o.pre) == 0:
		return 0
	case len(v.pre) == 0:
		return 1
	case len(o.pre) == 0:
		return -1
	}
	return slices.CompareFunc(v.pre, o.pre, comparePre)
}

func (v version) segmentOrZero(i int) uint64 {
	if i < len(v.segments) {
		return v.segments[i]
	}
	return 0
}

// sameNumbers reports whether only the pre-releases of v and o differ.
func (v version) sameNumbers(o version) bool { return slices.Equal(v.segments, o.segments) }

// comparePre orders parts of a pre-release: numbers by value and before words.
func comparePre(a, b string) int {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	switch {
	case errX == nil && errY == nil && x < y:
		return -1
	case errX == nil && errY == nil && x > y:
		return 1
	case errX == nil && errY == nil:
		return 0
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	}
	return strings.Compare(a, b)
}

// versionRange is a list of bounds that must all hold (">= 1.2, < 2").
type versionRange struct {
	bounds []versionBound
	semver bool
}

type versionBound struct {
	op string
	v  version
}

// parseVersionRange reads a list of bounds with commas between them. Operators are
// =, !=, >, >=, <, <= and, unless semver, ~>; none is =.
func parseVersionRange(s string, semver bool) (versionRange, error) {
	r := versionRange{semver: semver}
	if len(s) > 8*maxVersionLength {
		return r, fmt.Errorf("the version constraint has %d characters, at most %d are allowed", len(s), 8*maxVersionLength)
	}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		n := strings.IndexFunc(part, func(c rune) bool { return !strings.ContainsRune("=!<>~", c) })
		if n < 0 {
			return r, fmt.Errorf("malformed version bound %q", part)
		}
		b := versionBound{op: part[:n]}
		switch b.op {
		case "", "=", "!=", ">", ">=", "<", "<=":
		case "~>":
			if semver {
				return r, fmt.Errorf("~> is not an operator of %s", fleet.OpSemver)
			}
		default:
			return r, fmt.Errorf("malformed version bound %q", part)
		}
		var err error
		if b.v, err = parseVersion(strings.TrimSpace(part[n:]), semver); err != nil {
			return r, err
		}
		r.bounds = append(r.bounds, b)
	}
	return r, nil
}

// isSatisfiedBy reports whether s is a version within all bounds.
func (r versionRange) isSatisfiedBy(s string) bool {
	v, err := parseVersion(s, r.semver)
	if err != nil {
		return false
	}
	for _, b := range r.bounds {
		if !b.isSatisfiedBy(v, r.semver) {
			return false
		}
	}
	return true
}

// isSatisfiedBy compares. Unless semver, a pre-release never satisfies the ordering bounds
// of a release, nor those of a pre-release of other numbers: who asks for >= 1.0
// does not want 2.0-beta.
func (b versionBound) isSatisfiedBy(v version, semver bool) bool {
	c := v.compareVersions(b.v)
	switch b.op {
	case "", "=":
		return c == 0
	case "!=":
		return c != 0
	}
	if !semver && len(v.pre) > 0 && (len(b.v.pre) == 0 || !v.sameNumbers(b.v)) {
		return false
	}
	switch b.op {
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	}
	return c >= 0 && b.withinPessimistic(v)
}

// withinPessimistic is the upper end of ~>: all but the last given number stay.
// A pre-release bound is met by pre-releases of the same numbers alone, and a bound
// of four numbers by no version of three.
func (b versionBound) withinPessimistic(v version) bool {
	if len(b.v.pre) > 0 && len(v.pre) == 0 || len(b.v.segments) > len(v.segments) {
		return false
	}
	for i := range b.v.given - 1 {
		if v.segmentOrZero(i) != b.v.segments[i] {
			return false
		}
	}
	return true
}
