package api

// ExecInput is a message from a client to a running command: input, or the size of its terminal. One without both is
// a heartbeat.
type ExecInput struct {
	Stdin   *ExecIO   `json:"stdin,omitempty"`
	TTYSize *ExecSize `json:"tty_size,omitempty"`
}

// ExecOutput is a message from a running command to a client: output, or its end.
type ExecOutput struct {
	Stdout *ExecIO     `json:"stdout,omitempty"`
	Stderr *ExecIO     `json:"stderr,omitempty"`
	Exited bool        `json:"exited,omitempty"`
	Result *ExecResult `json:"result,omitempty"`
}

// ExecIO is a piece of input or output. Close ends the stream.
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
