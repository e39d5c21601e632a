package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"skerry/edge/store"
	"skerry/fleet"
)

// Storekeeper is implemented by an Agent whose edge has a store for artifacts.
type Storekeeper interface {
	Store(ctx context.Context) (Store, error)
	// LoadStore stores a content by hand: it answers every request for the key's source from then on.
	LoadStore(ctx context.Context, key store.Key, name string, content io.Reader) (store.Entry, error)
	// RemoveStored removes the contents of a source and returns how many there were.
	RemoveStored(ctx context.Context, source string) (int, error)
}

// Store lists the entries of the edge's store, the most recently used first.
type Store struct {
	Bytes, MaxBytes int64
	Entries         []store.Listed
}

// Removed is the result of RemoveStored.
type Removed struct{ Entries int }

// routeStore adds the handlers of the store if the agent has one.
func (s *Server) routeStore(mux *http.ServeMux) {
	keeper, ok := s.agent.(Storekeeper)
	if !ok {
		return
	}
	s.addRoute(mux, "GET /v1/store", fleet.SiteMayRead, s.jsonHandler(func(r *http.Request) (any, error) { return keeper.Store(r.Context()) }))
	s.addRoute(mux, "PUT /v1/store", fleet.SiteMayWrite, s.jsonHandler(func(r *http.Request) (any, error) {
		q := r.URL.Query()
		key := store.Key{Source: q.Get("source")}
		if key.Source == "" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "load a file into the store: a source is required")
		}
		if text := q.Get("checksum"); text != "" {
			var err error
			if key.Checksum, err = store.ParseChecksum(text); err != nil {
				return nil, err
			}
		}
		return keeper.LoadStore(r.Context(), key, q.Get("name"), r.Body)
	}))
	s.addRoute(mux, "DELETE /v1/store", fleet.SiteMayWrite, s.jsonHandler(func(r *http.Request) (any, error) {
		n, err := keeper.RemoveStored(r.Context(), r.URL.Query().Get("source"))
		return Removed{n}, err
	}))
}

// Store returns the entries of the edge's store.
func (c *Client) Store(ctx context.Context) (Store, error) {
	var s Store
	err := c.callJSON(ctx, http.MethodGet, "/v1/store", nil, &s)
	return s, err
}

// LoadStore stores a content for a source. It verifies the checksum unless that is "".
func (c *Client) LoadStore(ctx context.Context, source, checksum, name string, content io.Reader) (store.Entry, error) {
	q := url.Values{"source": {source}, "checksum": {checksum}, "name": {name}}
	resp, err := c.sendBody(ctx, http.MethodPut, "/v1/store", q, content)
	if err != nil {
		return store.Entry{}, err
	}
	defer resp.Body.Close()
	var e store.Entry
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
		return e, fmt.Errorf("read the agent's answer to the load of %s: %w", source, err)
	}
	return e, nil
}

// RemoveStored removes the contents of a source from the store.
func (c *Client) RemoveStored(ctx context.Context, source string) (Removed, error) {
	var r Removed
	err := c.callJSON(ctx, http.MethodDelete, "/v1/store", url.Values{"source": {source}}, &r)
	return r, err
}
