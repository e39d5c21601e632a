package console

import (
	"io"
	"os"
	"strings"
)

// What makes a terminal write in another colour, and what ends that.
const (
	green  = "\x1b[32m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// Coloured reports whether what is written to w may have colours: a terminal that can
// show some, of somebody who does not mind (https://no-color.org).
func Coloured(w io.Writer) bool {
	_, _, terminal := IsTerminal(w)
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// stateColours has the colour of each state that a job, an allocation, a node, a deployment, an
// evaluation or a hub can be in. A state that is not in it has none.
var stateColours = map[string]string{
	"ready": green, "running": green, "successful": green, "complete": green, "alive": green, "healthy": green,
	"pending": yellow, "initializing": yellow, "disconnected": yellow, "unknown": yellow, "paused": yellow, "blocked": yellow,
	"down": red, "failed": red, "lost": red, "dead": red, "left": red,
}

// stateColour gives a text the colour of the state that it begins with.
func stateColour(text string) string {
	state, _, _ := strings.Cut(text, ":")
	state, _, _ = strings.Cut(state, " ")
	if colour := stateColours[state]; colour != "" {
		return colour + state + plain + text[len(state):]
	}
	return text
}

// Marked gives lines the colours of the marks that they begin with: + for what comes,
// - for what goes, ~ for what changes.
func Marked(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSuffix(line, "\n")
		colour := ""
		switch mark, _, _ := strings.Cut(strings.TrimLeft(body, " "), " "); mark {
		case "+":
			colour = green
		case "-":
			colour = red
		case "~":
			colour = yellow
		}
		if colour != "" {
			body = colour + body + plain
		}
		b.WriteString(body + line[len(strings.TrimSuffix(line, "\n")):])
	}
	return b.String()
}
