// Package auditchain checks the lines of an audit, for the commands that show those of hubs and of edges. It reads and
// writes nothing but the command's output.
package auditchain

import (
	"encoding/json"
	"strconv"
	"strings"

	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/internal/hashchain"
)

// Chain checks that each line of an audit follows the one before.
type Chain struct {
	Entries     uint64
	First, Last uint64 // their numbers
	Hash        string // of the last line
	headSeq     uint64
	headHash    string
	headSeen    bool
}

// AddLine checks the next line, without its end.
func (ch *Chain) AddLine(line []byte) error {
	var e struct {
		Seq  uint64
		Prev string
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "check the audit: the line after entry %d: %w", ch.Last, err)
	}
	broken := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "check the audit: entry %d "+format, append([]any{e.Seq}, args...)...).
			WithHint("somebody changed the lines, or left some out; another copy shows which")
	}
	switch {
	case ch.Entries == 0:
		ch.First = e.Seq
	case e.Seq != ch.Last+1:
		return broken("follows entry %d", ch.Last)
	case e.Prev != ch.Hash:
		return broken("does not follow from the line before it, which was changed")
	}
	ch.Entries, ch.Last, ch.Hash = ch.Entries+1, e.Seq, hashchain.Hash(line)
	if ch.Last == ch.headSeq {
		if ch.headSeen = true; ch.Hash != ch.headHash {
			return broken("has another hash than the noted one: it or a line before it was changed")
		}
	}
	return nil
}

// SetHead parses NUMBER:HASH, as verify has written it before.
func (ch *Chain) SetHead(text string) error {
	number, hash, _ := strings.Cut(text, ":")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || seq == 0 || len(hash) != len(hashchain.Hash(nil)) {
		return fleet.Errorf(fleet.CodeInvalid, "check the audit: %q is not NUMBER:HASH", text).WithHint("give what skerry audit verify has written before")
	}
	ch.headSeq, ch.headHash = seq, hash
	return nil
}

// CheckHead returns an error unless the lines had the one of SetHead. Without SetHead it returns nil.
func (ch *Chain) CheckHead() error {
	if ch.headSeq > 0 && !ch.headSeen {
		return fleet.Errorf(fleet.CodeInvalid, "check the audit: it has no entry %d", ch.headSeq).
			WithHint("it ends before, or its oldest files are gone, or it is the audit of another hub")
	}
	return nil
}

// WriteResult says what was checked.
func (ch *Chain) WriteResult(out *console.Output) error {
	if err := ch.CheckHead(); err != nil {
		return err
	}
	if ch.Entries == 0 {
		out.Say(ch, "There are no entries.")
		return nil
	}
	out.Say(ch, "Entries %d to %d follow from each other. Keep this line: --head %d:%s", ch.First, ch.Last, ch.Last, ch.Hash)
	return nil
}
