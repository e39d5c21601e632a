package api

// ExecInput is what a client says to a command.
type ExecInput struct {
	Stdin   *ExecIO   `json:"stdin,omitempty"`
	TTYSize *ExecSize `json:"tty_size,omitempty"`
}

// ExecOutput is what a command says to a client.
type ExecOutput struct {
	Stdout *ExecIO     `json:"stdout,omitempty"`
	Stderr *ExecIO     `json:"stderr,omitempty"`
	Exited bool        `json:"exited,omitempty"`
	Result *ExecResult `json:"result,omitempty"`
}

// ExecIO is a piece of a stream, or its end.
type ExecIO struct {
	Data  []byte `json:"data,omitempty"`
	Close bool   `json:"close,omitempty"`
}

// ExecSize is a terminal's size in characters.
type ExecSize struct {
	Height int `json:"height"`
	Width  int `json:"width"`
}

// ExecResult is how a command ended.
type ExecResult struct {
	ExitCode int `json:"exit_code"`
}
