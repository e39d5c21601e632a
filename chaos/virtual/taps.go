package virtual

import "skerry/hub"

// Taps see a run while it goes on. Each may be nil, and must not block.
type Taps struct {
	// Applied is every command that a hub applied.
	Applied func(hubName string, a hub.Applied)
}

func (t Taps) applied(name string) func(hub.Applied) {
	if t.Applied == nil {
		return nil
	}
	return func(a hub.Applied) { t.Applied(name, a) }
}
