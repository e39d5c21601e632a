package report

import "skerry/fleet"

// The shapes of states: where in a row they stand and how thick they are, so that
// they are told apart without their colours. Each takes the row's top.

func nodeShape(top int) func(state string) (y, h int, class string) {
	return func(state string) (int, int, string) {
		switch fleet.NodeStatus(state) {
		case fleet.NodeReady:
			return top + 3, 9, "ready"
		case fleet.NodeInitializing:
			return top + 5, 5, "initializing"
		}
		return top + 3, 9, state // disconnected, down, mixed: hatched, outlined, chequered
	}
}

func linkShape(top int) func(state string) (y, h int, class string) {
	return func(state string) (int, int, string) {
		if state == stateDisconnected {
			return top + 15, 1, state
		}
		return top + 14, 3, state
	}
}

func unsentShape(top int) func(state string) (y, h int, class string) {
	return func(state string) (int, int, string) {
		switch state {
		case rowMagnitude(1):
			return top + 20, 1, "unsent"
		case rowMagnitude(10):
			return top + 19, 2, "unsent"
		}
		return top + 18, 3, "unsent"
	}
}

func allocShape(top int) func(state string) (y, h int, class string) {
	return func(state string) (int, int, string) {
		if state == fleet.ClientPending {
			return top + 3, 2, state
		}
		return top + 1, 6, state // running, unknown, stopping, mixed: full, hatched, striped, chequered
	}
}
