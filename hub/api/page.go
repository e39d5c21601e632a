package api

import (
	"cmp"
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

// Bounds of what a list may be asked.
const (
	// MaxFilter is the longest filter expression taken, in bytes.
	MaxFilter = 4 << 10
	// maxFilterSteps bounds the work of parsing one.
	maxFilterSteps = 200_000
	// maxToken is the longest page token that this API gives out, and takes.
	maxToken = 2 << 10
)

// pages is what the parameters of a list endpoint mean.
type pages struct {
	perPage int // 0: all at once
	from    string
	resumed bool // from says where the page starts
	reverse bool
	filter  *bexpr.Evaluator // nil: everything
	query   uint64           // fingerprint of all that decides what is listed, and in which order
}

// pageOfItems is an answer that may have a page behind it.
type pageOfItems struct {
	answer any
	next   string
}

// narrowing are the parameters that decide what a list holds and how it is
// ordered: a token is good for the same ones alone.
var narrowing = []string{"namespace", "prefix", "filter", "reverse", "job", "jobs", "status", "type", "unreachable", "include_children", "all"}

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

// parseFilter reads a filter expression; nil where there is none.
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

func encodeToken(key string, query uint64) string {
	b := binary.BigEndian.AppendUint64([]byte{tokenVersion}, query)
	return base64.RawURLEncoding.EncodeToString(append(b, key...))
}

func decodeToken(token string, query uint64) (key string, err error) {
	if len(token) > maxToken {
		return "", fleet.Errorf(fleet.CodeInvalid, "read the parameter next_token: it is longer than every token of this API")
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 9 || b[0] != tokenVersion {
		return "", fleet.Errorf(fleet.CodeInvalid, "read the parameter next_token: %q is not a token of this API", token).
			WithHint("send what the header %s of the page before said", api.NextTokenHeader)
	}
	if binary.BigEndian.Uint64(b[1:]) != query {
		return "", fleet.Errorf(fleet.CodeInvalid, "read the parameter next_token: it belongs to another query").
			WithHint("keep namespace, prefix, filter and reverse as they were for the first page, or begin without a token")
	}
	return string(b[9:]), nil
}

// Order keys. Those of one list sort as the list does, and no two are the same.

// byAge orders from the oldest to the newest.
func byAge(created fleet.Index, id string) string { return fmt.Sprintf("%020d.%s", created, id) }

// ageKey is the order of a list of things that are known by ids: by age, or by id
// where a prefix of the id is given.
func ageKey(q query, created fleet.Index, id string) string {
	if q.prefix != "" {
		return id
	}
	return byAge(created, id)
}

// page lists what the parameters of a request ask of items: in the order of key,
// those that pass the filter, from where the token says. show makes what is
// answered of an item.
func page[T, S any](r *http.Request, items iter.Seq[T], key func(T) string, show func(T) S) (pageOfItems, error) {
	p, err := parsePages(r)
	if err != nil {
		return pageOfItems{}, err
	}
	return cutPage(p, items, key, show)
}

// cutPage is page for parameters that were read.
func cutPage[T, S any](p pages, items iter.Seq[T], key func(T) string, show func(T) S) (pageOfItems, error) {
	type entry struct {
		key  string
		item T
	}
	var list []entry
	for it := range items {
		k := key(it)
		if p.resumed && (!p.reverse && k < p.from || p.reverse && k > p.from) {
			continue
		}
		list = append(list, entry{k, it})
	}
	slices.SortFunc(list, func(x, y entry) int { return strings.Compare(x.key, y.key) })
	if p.reverse {
		slices.Reverse(list)
	}
	out := make([]S, 0, cmp.Or(min(p.perPage, len(list)), len(list)))
	for _, e := range list {
		if ok, err := p.passesFilter(e.item); err != nil {
			return pageOfItems{}, err
		} else if !ok {
			continue
		}
		if p.perPage > 0 && len(out) == p.perPage {
			return pageOfItems{out, encodeToken(e.key, p.query)}, nil
		}
		out = append(out, show(e.item))
	}
	return pageOfItems{answer: out}, nil
}

// filterByPrefix are those of the items that are known by what begins with the prefix of the
// query.
func filterByPrefix[T any](q query, items iter.Seq[T], known func(T) string) iter.Seq[T] {
	return selectItems(items, func(it T) bool { return strings.HasPrefix(known(it), q.prefix) })
}

// selectItems are the items that are wanted.
func selectItems[T any](items iter.Seq[T], wanted func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for it := range items {
			if wanted(it) && !yield(it) {
				return
			}
		}
	}
}

// passesFilter reports whether an item passes the filter.
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

// filterErrorText says why an expression does not fit what is listed, without the words of Go.
func filterErrorText(err error) string {
	s := strings.TrimPrefix(err.Error(), "error finding value in datum: ")
	if field, _, ok := strings.Cut(s, " at part "); ok && strings.Contains(s, "struct field with name") {
		return fmt.Sprintf("there is no field %s", strings.ReplaceAll(strings.TrimPrefix(field, "/"), "/", "."))
	}
	return s
}

func unchangedItem[T any](v T) T { return v }
