package api

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-bexpr"

	"skerry/api"
	"skerry/fleet"
)

// Bounds of the parameters of lists.
const (
	// MaxFilter is the longest filter expression that is accepted, in bytes.
	MaxFilter = 4 << 10
	// maxFilterSteps bounds the work of parsing a filter expression.
	maxFilterSteps = 200_000
	// maxToken is the longest page token, in bytes.
	maxToken = 2 << 10
)

// pages has the parameters of a list request: page size, page token, order and filter.
type pages struct {
	perPage int // 0: all at once
	from    string
	resumed bool // from is the order key at which the page starts
	reverse bool
	filter  *bexpr.Evaluator // nil: everything
	query   uint64           // fingerprint of the path and the narrowing parameters
}

// pageOfItems is one page of a list, and the token of the next page; "": it is the last.
type pageOfItems struct {
	answer any
	next   string
}

// narrowing are the parameters that change which items a list has, or their order. A page token is only valid with
// the values that the first page had.
var narrowing = []string{"namespace", "prefix", "filter", "reverse", "job", "jobs", "status", "type", "unreachable", "include_children", "all", "node_id", "node_pool", "global"}

// parsePages reads the parameters of a list request. A token of another query is an error.
func parsePages(r *http.Request) (pages, error) {
	p := r.URL.Query()
	var out pages
	if s := p.Get("per_page"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 0 {
			return out, fleet.Errorf(fleet.CodeInvalid, "read the parameter per_page: %q is not a number of items", s)
		}
		out.perPage = int(n)
	}
	var err error
	if out.reverse, err = queryFlag(r, "reverse", false); err != nil {
		return out, err
	}
	if out.filter, err = parseFilter(p.Get("filter")); err != nil {
		return out, err
	}
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%q", r.URL.Path)
	for _, name := range narrowing {
		fmt.Fprintf(sum, "%q", p.Get(name))
	}
	out.query = sum.Sum64()
	if token := p.Get("next_token"); token != "" {
		out.resumed = true
		out.from, err = decodeToken(token, out.query)
	}
	return out, err
}

// parseFilter compiles a filter expression; nil: s is "".
func parseFilter(s string) (*bexpr.Evaluator, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > MaxFilter {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the parameter filter: it has %d bytes, at most %d are allowed", len(s), MaxFilter)
	}
	e, err := bexpr.CreateEvaluator(s, bexpr.WithMaxExpressions(maxFilterSteps))
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the parameter filter: at line:column (byte) %w", err).
			WithHint(`write it like Status == "running" and Meta.team != "x"; strings are in quotes`)
	}
	return e, nil
}

// A token is a version, the fingerprint of its query, and the order key of the
// first item of the page.
const tokenVersion = 1

// encodeToken returns the token of the page whose first item has the order key.
func encodeToken(key string, query uint64) string {
	b := binary.BigEndian.AppendUint64([]byte{tokenVersion}, query)
	return base64.RawURLEncoding.EncodeToString(append(b, key...))
}

// decodeToken returns the order key in a page token. It fails if the token belongs to another query.
func decodeToken(token string, query uint64) (key string, err error) {
	if len(token) > maxToken {
		return "", fleet.Errorf(fleet.CodeInvalid, "read the parameter next_token: it is longer than every token of this API")
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 9 || b[0] != tokenVersion {
		return "", fleet.Errorf(fleet.CodeInvalid, "read the parameter next_token: %q is not a token of this API", token).
			WithHint("send the value of the header %s of the previous page", api.NextTokenHeader)
	}
	if binary.BigEndian.Uint64(b[1:]) != query {
		return "", fleet.Errorf(fleet.CodeInvalid, "read the parameter next_token: it belongs to another query").
			WithHint("keep namespace, prefix, filter and reverse as they were for the first page, or begin without a token")
	}
	return string(b[9:]), nil
}

// Order keys. Those of one list sort as the list does, and no two are the same.

// byAge returns an order key that sorts items from the oldest to the newest.
func byAge(created fleet.Index, id string) string { return fmt.Sprintf("%020d.%s", created, id) }

// ageKey returns the order key of an item of a list that is ordered by age, or by id if the query has a prefix.
func ageKey(q query, created fleet.Index, id string) string {
	if q.prefix != "" {
		return id
	}
	return byAge(created, id)
}

// page returns the page of items that the request's parameters select: filtered, ordered by key, starting at the
// token. Items that the request's ACL token may not know of are left out. show makes the list item that is answered.
func page[T, S any](r *http.Request, items iter.Seq[T], key func(T) string, show func(T) S) (pageOfItems, error) {
	p, err := parsePages(r)
	if err != nil {
		return pageOfItems{}, err
	}
	g := grantOf(r)
	return cutPage(p, selectItems(items, func(it T) bool { return g.allowsItem(it) }), key, show)
}

// cutPage is page with parameters that were parsed already.
func cutPage[T, S any](p pages, items iter.Seq[T], key func(T) string, show func(T) S) (pageOfItems, error) {
	list, next, err := cutItems(p, items, key)
	if err != nil {
		return pageOfItems{}, err
	}
	shown := make(shownList[S], 0, len(list))
	for _, it := range list {
		shown = append(shown, show(it))
	}
	return pageOfItems{shown, next}, nil
}

// cutItems returns the items of the page, and the token of the next page. It keeps at most two pages of the items that it
// has read, however many there are.
func cutItems[T any](p pages, items iter.Seq[T], key func(T) string) (list []T, next string, err error) {
	c := pageCutter[T]{pages: p}
	for it := range items {
		if err := c.addItem(key(it), it); err != nil {
			return nil, "", err
		}
	}
	list, next = c.cutEntries()
	return list, next, nil
}

// pageCutter finds the first items of a list that is read in any order.
type pageCutter[T any] struct {
	pages
	entries []pageEntry[T] // those that may be on the page, and one behind it
	last    string         // with isFull: no entry behind this key is on the page, or is the one behind it
	isFull  bool
}

// pageEntry is an item with its order key.
type pageEntry[T any] struct {
	key  string
	item T
}

// addItem adds an item, unless it is before the page, behind it, or does not pass the filter.
func (c *pageCutter[T]) addItem(key string, item T) error {
	if c.resumed && c.compareKeys(key, c.from) < 0 || c.isFull && c.compareKeys(key, c.last) > 0 {
		return nil
	}
	if ok, err := c.passesFilter(item); err != nil || !ok {
		return err
	}
	c.entries = append(c.entries, pageEntry[T]{key, item})
	if c.perPage > 0 && len(c.entries)/2 > c.perPage {
		c.sortEntries()
		clear(c.entries[c.perPage+1:])
		c.entries = c.entries[:c.perPage+1]
		c.isFull, c.last = true, c.entries[c.perPage].key
	}
	return nil
}

// cutEntries returns the items of the page, and the token of the next page; "": there is none.
func (c *pageCutter[T]) cutEntries() (list []T, next string) {
	c.sortEntries()
	for _, e := range c.entries {
		if c.perPage > 0 && len(list) == c.perPage {
			return list, encodeToken(e.key, c.query)
		}
		list = append(list, e.item)
	}
	return list, ""
}

// sortEntries sorts the entries in the order of the list.
func (c *pageCutter[T]) sortEntries() {
	slices.SortFunc(c.entries, func(x, y pageEntry[T]) int { return c.compareKeys(x.key, y.key) })
}

// compareKeys compares two order keys in the order of the list.
func (p pages) compareKeys(x, y string) int {
	if p.reverse {
		x, y = y, x
	}
	return strings.Compare(x, y)
}

// shownList is an answer that is written item by item.
type shownList[S any] []S

// eachItem iterates over the items.
func (l shownList[S]) eachItem(yield func(any) bool) {
	for i := range l {
		if !yield(l[i]) {
			return
		}
	}
}

// filterByPrefix iterates over the items whose id or name, which known returns, has the query's prefix.
func filterByPrefix[T any](q query, items iter.Seq[T], known func(T) string) iter.Seq[T] {
	return selectItems(items, func(it T) bool { return strings.HasPrefix(known(it), q.prefix) })
}

// selectItems iterates over the items for which wanted is true.
func selectItems[T any](items iter.Seq[T], wanted func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for it := range items {
			if wanted(it) && !yield(it) {
				return
			}
		}
	}
}

// mapItems iterates over the results of f for the items.
func mapItems[T, S any](items iter.Seq[T], f func(T) S) iter.Seq[S] {
	return func(yield func(S) bool) {
		for it := range items {
			if !yield(f(it)) {
				return
			}
		}
	}
}

// passesFilter reports whether an item passes the filter. It fails if the filter names a field that the item lacks.
func (p pages) passesFilter(item any) (ok bool, err error) {
	if p.filter == nil {
		return true, nil
	}
	ok, err = p.filter.Evaluate(item)
	if err != nil {
		return false, fleet.Errorf(fleet.CodeInvalid, "use the parameter filter %q: %s", p.filter.Expression(), filterErrorText(err)).
			WithHint("fields have the names of the JSON of one such object: ID, Status, Meta.KEY, TaskGroups.0.Name")
	}
	return ok, nil
}

// filterErrorText returns why a filter expression does not fit the items, in words of JSON instead of Go.
func filterErrorText(err error) string {
	s := strings.TrimPrefix(err.Error(), "error finding value in datum: ")
	if field, _, ok := strings.Cut(s, " at part "); ok && strings.Contains(s, "struct field with name") {
		return fmt.Sprintf("there is no field %s", strings.ReplaceAll(strings.TrimPrefix(field, "/"), "/", "."))
	}
	return s
}

// unchangedItem is the show function of lists that answer with the items themselves.
func unchangedItem[T any](v T) T { return v }
