package fleet

import (
	"slices"
	"time"
)

// durations are the keys of a mesh's tree that hold durations.
var durations = []string{"ConnectTimeout", "KillTimeout", "ShutdownDelay"}

// tidyConnect returns a service's connect block without what says nothing, and with
// durations as nanoseconds: clients write every field of it, job files only some. It is
// kept as a tree, for nothing acts on it.
func tidyConnect(m map[string]any) map[string]any {
	tidy := make(map[string]any, len(m))
	for k, v := range m {
		switch x := v.(type) {
		case map[string]any:
			if k != "Config" {
				tidy[k] = tidyConnect(x)
			} else if len(x) > 0 {
				tidy[k] = x
			}
			continue
		case []any:
			list := make([]any, len(x))
			for i, e := range x {
				if sub, ok := e.(map[string]any); ok {
					e = tidyConnect(sub)
				}
				list[i] = e
			}
			v = list
		case string:
			if d, err := time.ParseDuration(x); err == nil && slices.Contains(durations, k) {
				v = int64(d)
			}
		}
		if !isEmpty(v) {
			tidy[k] = v
		}
	}
	return tidy
}
