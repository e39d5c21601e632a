package rawexec

// Settings reads a config block.
func Settings(config map[string]any) (command string, args []string, err error) {
	s, err := parseSettings(config)
	return s.command, s.args, err
}
