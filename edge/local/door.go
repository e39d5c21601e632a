package local

import (
	"context"
	"errors"
	"net/http"

	"skerry/fleet"
)

// siteCodeHeader has the site code of a request.
const siteCodeHeader = "Skerry-Site-Code"

// Doorkeeper is implemented by an Agent whose edge checks site codes.
type Doorkeeper interface {
	// Admit checks the site code of a request, "" for none, and that it gives a capability. It returns the context with
	// the person of the code.
	Admit(ctx context.Context, code, capability string) (context.Context, error)
}

// addRoute adds a handler for requests that need a capability, if a site code is given.
func (s *Server) addRoute(mux *http.ServeMux, pattern, capability string, serve http.HandlerFunc) {
	keeper, ok := s.agent.(Doorkeeper)
	if !ok {
		mux.HandleFunc(pattern, serve)
		return
	}
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		code := r.Header.Get(siteCodeHeader)
		ctx, err := keeper.Admit(r.Context(), code, capability)
		switch {
		case err == nil:
			serve(w, r.WithContext(ctx))
		case code == "" && fleet.CodeOf(err) == fleet.CodeForbidden:
			s.writeJSON(w, http.StatusUnauthorized, fleet.AsError(err))
		default:
			s.writeError(w, err)
		}
	})
}

// siteCodeNeeded is the refusal of a request without a site code.
type siteCodeNeeded struct{ refusal *fleet.Error }

func (e *siteCodeNeeded) Error() string { return e.refusal.Error() }
func (e *siteCodeNeeded) Unwrap() error { return e.refusal }

// NeedsSiteCode reports whether the edge has refused a request because it had no site code. Nothing was done.
func NeedsSiteCode(err error) bool {
	var needed *siteCodeNeeded
	return errors.As(err, &needed)
}
