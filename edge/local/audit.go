package local

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"skerry/fleet"
)

// Auditor is implemented by an Agent whose edge keeps an audit.
type Auditor interface {
	// CopyAudit writes the lines of the audit after a number.
	CopyAudit(w io.Writer, after uint64) error
}

// routeAudit adds the handler of the audit if the agent has one.
func (s *Server) routeAudit(mux *http.ServeMux) {
	keeper, ok := s.agent.(Auditor)
	if !ok {
		return
	}
	s.addRoute(mux, "GET /v1/audit", fleet.SiteMayRead, func(w http.ResponseWriter, r *http.Request) {
		var after uint64
		if text := r.FormValue("after"); text != "" {
			var err error
			if after, err = strconv.ParseUint(text, 10, 64); err != nil {
				s.writeError(w, fleet.Errorf(fleet.CodeInvalid, "read the audit: after is no number of a line: %.32q", text))
				return
			}
		}
		w.Header().Set("Content-Type", "application/jsonl")
		if err := keeper.CopyAudit(w, after); err != nil {
			s.log.Warn("audit not sent", "error", err)
		}
	})
}

// Audit opens the lines of the edge's audit after a number.
func (c *Client) Audit(ctx context.Context, after uint64) (io.ReadCloser, error) {
	resp, err := c.sendAgentRequest(ctx, http.MethodGet, "/v1/audit", url.Values{"after": {strconv.FormatUint(after, 10)}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
