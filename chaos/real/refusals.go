package real

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"

	"skerry/chaos/check"
	"skerry/fleet"
)

// maxLog bounds what is read of a log at a time, in bytes, and so the length of a
// line that is understood.
const maxLog = 1 << 20

// refusals are the sessions that a hub turned away, as its log tells.
type refusals struct {
	hub  string
	path string
	read int64 // bytes of the log so far
}

// readNewRefusals reads what was written since the last call. A line that is not yet whole is
// left for the next one.
func (r *refusals) readNewRefusals() []check.Refused {
	f, err := os.Open(r.path)
	if err != nil {
		return nil // the hub has not said anything yet
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, r.read, maxLog))
	if err != nil {
		return nil
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if whole == 0 && len(text) == maxLog {
		whole = maxLog // a line without an end is nobody's refusal
	}
	r.read += int64(whole)
	var found []check.Refused
	for line := range strings.Lines(string(text[:whole])) {
		if seen, ok := parseRefusal(line); ok {
			seen.By = r.hub
			found = append(found, seen)
		}
	}
	return found
}

// parseRefusal understands what the gateway logs of a session that it turned away.
func parseRefusal(line string) (check.Refused, bool) {
	said := logged(line, "msg")
	if said != "session refused" && said != "session fenced" {
		return check.Refused{}, false
	}
	node := logged(line, "node")
	return check.Refused{From: node, Code: fleet.Code(logged(line, "code")), Reason: logged(line, "error")}, true
}

// logged is the value of a key in a line of slog's text.
func logged(line, key string) string {
	for rest := strings.TrimSpace(line); rest != ""; {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return ""
		}
		value, more, _ := strings.Cut(after, " ")
		if strings.HasPrefix(after, `"`) {
			quoted, err := strconv.QuotedPrefix(after)
			if err != nil {
				return ""
			}
			value, _ = strconv.Unquote(quoted) // it was just found to be one
			more = strings.TrimPrefix(after[len(quoted):], " ")
		}
		if name == key {
			return value
		}
		rest = strings.TrimLeft(more, " ")
	}
	return ""
}
