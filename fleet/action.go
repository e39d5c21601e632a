package fleet

import "slices"

// Action is a command that an operator may run inside a task, by its name.
type Action struct {
	Name    string
	Command string
	Args    []string
}

// Action returns the task's action of a name, or nil.
func (t *Task) Action(name string) *Action {
	i := slices.IndexFunc(t.Actions, func(a Action) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Actions[i]
}
