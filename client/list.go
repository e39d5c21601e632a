package client

import (
	"context"
	"net/url"
	"strconv"
)

// List filters a list. Endpoints ignore the fields that they do not support.
type List struct {
	Prefix  string // of the ids
	Filter  string // an expression
	Job     string // of evaluations and scaling policies
	Status  string // of evaluations
	Type    string // of scaling policies
	All     bool   // also of an earlier job of the same id
	Reverse bool
	PerPage int // 0: all
}

// queryValues returns the request's parameters.
func (l List) queryValues() url.Values {
	q := url.Values{"prefix": {l.Prefix}, "filter": {l.Filter}, "job": {l.Job}, "status": {l.Status}, "type": {l.Type}}
	if l.All {
		q.Set("all", "true")
	}
	if l.Reverse {
		q.Set("reverse", "true")
	}
	if l.PerPage > 0 {
		q.Set("per_page", strconv.Itoa(l.PerPage))
	}
	return q
}

// readList reads the list at path.
func readList[T any](ctx context.Context, c *Client, path string, l List) ([]T, error) {
	return readAnswer[[]T](ctx, c, path, l.queryValues())
}

func flag(on bool) string { return strconv.FormatBool(on) }
