package console

import (
	"fmt"
	"strings"

	"skerry/fleet"
)

// Transition writes a journal row as a sentence.
func Transition(t *fleet.Transition) string {
	var parts []string
	if t.Task != "" {
		parts = append(parts, "task "+t.Task+":")
	}
	switch t.Kind {
	case fleet.TransitionDisconnect:
		parts = append(parts, "the link is gone")
	case fleet.TransitionReconnect:
		parts = append(parts, "the link is back")
	case fleet.TransitionAgent:
		parts = append(parts, "the agent started, boot "+fleet.Short(t.BootID))
	case fleet.TransitionGap:
		parts = append(parts, fmt.Sprintf("%d rows were dropped here", t.Dropped))
	case fleet.TransitionSite:
		parts = append(parts, "audit:")
	case fleet.TransitionOperator:
		parts = append(parts, "somebody on site:")
	}
	if t.Event != nil {
		parts = append(parts, event(t.Event))
	} else if t.TaskState != nil && t.TaskState.State != "" {
		parts = append(parts, t.TaskState.State)
	}
	if t.Message != "" {
		parts = append(parts, t.Message)
	}
	if t.ClientStatus != "" {
		status := "→ " + t.ClientStatus
		if t.ClientDescription != "" {
			status += " (" + t.ClientDescription + ")"
		}
		parts = append(parts, status)
	}
	if len(parts) == 0 {
		return string(t.Kind)
	}
	return strings.Join(parts, " ")
}

func event(e *fleet.TaskEvent) string {
	if e.DisplayMessage == "" {
		return e.Type
	}
	return e.Type + ": " + e.DisplayMessage
}
