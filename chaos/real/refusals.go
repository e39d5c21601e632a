package real

import (
	"strconv"
	"strings"

	"skerry/chaos/check"
	"skerry/chaos/observe"
	"skerry/fleet"
)

// refusals reads the sessions that a hub refused from its log file.
type refusals struct {
	hub string
	log observe.FileTail
}

// readNewRefusals returns the refusals that were logged since the last call.
func (r *refusals) readNewRefusals() []check.Refused {
	var found []check.Refused
	_ = r.log.Next(func(line []byte) error { // an unreadable log is read at the next call
		if seen, ok := parseRefusal(string(line)); ok {
			seen.By = r.hub
			found = append(found, seen)
		}
		return nil
	})
	return found
}

// parseRefusal parses a log line of the gateway; ok is false if it is not about a refused session.
func parseRefusal(line string) (check.Refused, bool) {
	said := logged(line, "msg")
	if said != "session refused" && said != "session fenced" {
		return check.Refused{}, false
	}
	node := logged(line, "node")
	return check.Refused{From: node, Code: fleet.Code(logged(line, "code")), Reason: logged(line, "error")}, true
}

// logged returns the value of a key in a line of slog's text format; "": the line lacks the key.
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
