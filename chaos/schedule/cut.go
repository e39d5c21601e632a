package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseFault reads the value of a flag such as --cut, EDGE@TIME:DURATION: 3@2h:45m hits edge-3 at 2 h
// for 45 min. EDGE is a number, a name or a site, several of them with commas, or all. Without
// :DURATION the fault's For is 0. Parameters have the defaults of the kind.
func ParseFault(kind Kind, text string) (Fault, error) {
	fail := func(format string, args ...any) (Fault, error) {
		return Fault{}, fmt.Errorf("read the %s %q: %s (EDGE@TIME:DURATION, such as 3@2h:45m)", kind, text, fmt.Sprintf(format, args...))
	}
	who, when, ok := strings.Cut(text, "@")
	if !ok {
		return fail("it has no @")
	}
	f := Fault{Kind: kind, Params: kind.Fill(Params{})}
	for name := range strings.SplitSeq(who, ",") {
		n, err := strconv.Atoi(name)
		switch {
		case name == "all":
			name = TargetEdges
		case err == nil && (n < 1 || n > MaxEdges):
			return fail("edges are 1 to %d, not %s", MaxEdges, name)
		case err == nil:
			name = EdgeName(n)
		default:
			if err := checkLabel(name); err != nil {
				return fail("the name of an edge %s: %q", err, name)
			}
		}
		f.Targets = append(f.Targets, name)
	}
	at, long, ok := strings.Cut(when, ":")
	var err error
	if f.At, err = parseDuration(at, 0, longest); err != nil {
		return fail("the time %s", err)
	}
	if !ok {
		return f, nil
	}
	info, _ := kind.Info()
	if f.For, err = parseDuration(long, max(time.Second, info.Shortest), info.Longest); err != nil {
		return fail("the duration %s", err)
	}
	return f, nil
}
