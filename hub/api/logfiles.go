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

// logsFolder is the folder of an allocation in which the output of its tasks is.
const logsFolder = "alloc/logs"

// logFile is one file of a task's output.
type logFile struct {
	name string
	size int64
}

// logPosition says in which file, and where in it, the next byte of a task's output is. It is estimated once, when
// the output is requested, for edges of older releases, which do not report it (RequestLogPieces).
type logPosition struct {
	files []logFile // when the output was requested, the oldest first
	at    int64     // in the first of files
}

// advanceBy returns the file and offset of the next n bytes, and moves the position behind them. Bytes behind the
// last known file count as more of that file.
func (p *logPosition) advanceBy(n int64) (name string, offset int64) {
	for len(p.files) > 1 && p.at >= p.files[0].size {
		p.at -= p.files[0].size
		p.files = p.files[1:]
	}
	offset = p.at
	p.at += n
	return p.files[0].name, offset
}

// logPosition asks the edge for the files of a task's output, and returns where the output that req asks for begins.
// If the edge does not answer, it is the start of the task's file number 0.
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

// newLogPosition finds the files that are called named.NUMBER in a listing, and returns the position at which the
// output that req asks for begins.
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
