package fleet

// Action is a command that an operator may run inside a task, by its name.
type Action struct {
	Name    string
	Command string
	Args    []string
}
