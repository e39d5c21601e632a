package api

import (
	"cmp"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"skerry/fleet"
	"skerry/syncproto"
)

// logsFolder is where an allocation's folder has what its tasks wrote.
const logsFolder = "alloc/logs"

// logFile is one file of a task's output.
type logFile struct {
	name string
	size int64
}

// logPosition is where in a task's files the next byte of its output lies, for edges of a release
// that does not say so (RequestLogPieces): found once, when the output is asked for.
type logPosition struct {
	files []logFile // as they were when the output was asked for, the oldest first
	at    int64     // in the first of files
}

// advanceBy returns the file and the offset of the next n bytes, and goes on behind them. What
// is behind the last file that was there is taken for more of it.
func (p *logPosition) advanceBy(n int64) (name string, offset int64) {
	for len(p.files) > 1 && p.at >= p.files[0].size {
		p.at -= p.files[0].size
		p.files = p.files[1:]
	}
	offset = p.at
	p.at += n
	return p.files[0].name, offset
}

// logPosition asks the edge which files a task's output lies in, and finds where a request
// for it begins. Where that is not found out, the file is called after the task alone.
func (a *API) logPosition(r *http.Request, req syncproto.Request) *logPosition {
	named := req.Task + "." + req.Stream
	unknown := &logPosition{files: []logFile{{name: path.Join(logsFolder, named+".0")}}}
	al, ok := a.cfg.State.View().Alloc(req.Alloc)
	if !ok {
		return unknown
	}
	out, err := a.cfg.Edges.Logs(r.Context(), al.NodeID, syncproto.Request{Kind: syncproto.RequestList, Alloc: al.ID, Path: logsFolder})
	if err != nil {
		return unknown
	}
	defer out.Close()
	list, err := decodeAnswer[[]fleet.FileInfo](out)
	if err != nil {
		return unknown
	}
	return newLogPosition(list, named, req)
}

func newLogPosition(list []fleet.FileInfo, named string, req syncproto.Request) *logPosition {
	p := &logPosition{}
	numbers := map[string]int{}
	total := int64(0)
	for _, f := range list {
		number, isLog := strings.CutPrefix(f.Name, named+".")
		n, err := strconv.Atoi(number)
		if !isLog || err != nil {
			continue
		}
		name := path.Join(logsFolder, f.Name)
		numbers[name] = n
		total += f.Size
		p.files = append(p.files, logFile{name, f.Size})
	}
	if len(p.files) == 0 {
		p.files = []logFile{{name: path.Join(logsFolder, named+".0")}}
	}
	slices.SortFunc(p.files, func(x, y logFile) int { return cmp.Compare(numbers[x.name], numbers[y.name]) })
	p.at = min(req.Offset, total)
	if req.Origin == "end" {
		p.at = total - p.at
	}
	return p
}
