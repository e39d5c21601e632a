package api

import (
	"cmp"
	"iter"
	"net/http"
	"slices"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// Bounds of a search, as Nomad has them.
const (
	// maxMatches is the largest number of ids of one context in the answer to a prefix search.
	maxMatches = 20
	// maxFuzzy is the largest number of matches of one context in the answer to a fuzzy search.
	maxFuzzy = 100
	// minTerm (of fuzzy searches) and maxTerm bound the searched text, in bytes.
	minTerm = 2
	maxTerm = 512
)

// Contexts of a search.
const (
	contextAll         = "all"
	contextAllocs      = "allocs"
	contextDeployments = "deployment"
	contextEvals       = "evals"
	contextJobs        = "jobs"
	contextNodes       = "nodes"
	contextPools       = "node_pools"
	contextNamespaces  = "namespaces"
)

// idContexts are the contexts whose objects are searched by the prefix of their ids.
var idContexts = []string{contextAllocs, contextDeployments, contextEvals, contextJobs, contextNodes, contextPools, contextNamespaces}

// insideJobs are the contexts of names within jobs.
var insideJobs = []string{"groups", "services", "tasks", "images", "commands", "classes"}

// later are contexts of Nomad that Skerry does not have: a search there finds nothing.
var later = []string{"quotas", "recommendations", "scaling_policy", "plugins", "vars", "volumes", "host_volumes"}

func (a *API) searchEndpoints() []endpoint {
	return []endpoint{
		{writes, "/v1/search", filteredAnswer, a.searchHandler(a.searchPrefix)},
		{writes, "/v1/search/fuzzy", filteredAnswer, a.searchHandler(a.searchFuzzy)},
	}
}

// searchHandler serves f as a read whose parameters are in the body. Blocking queries call f several times with one
// body.
func (a *API) searchHandler(f func(v *state.View, g *grant, q query, req api.SearchRequest) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req api.SearchRequest
		if err := a.decodeBody(r, &req); err != nil {
			a.writeError(w, err)
			return
		}
		if err := validateSearch(&req); err != nil {
			a.writeError(w, err)
			return
		}
		a.readHandler(func(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
			answer, err := f(v, grantOf(r), q, req)
			return answer, v.Index(), err
		})(w, r)
	}
}

// validateSearch fills in the default context, and returns an error for an invalid search.
func validateSearch(req *api.SearchRequest) error {
	if req.Context == "" {
		req.Context = contextAll
	}
	known := slices.Concat([]string{contextAll}, idContexts, insideJobs, later)
	if !slices.Contains(known, req.Context) {
		return fleet.Errorf(fleet.CodeInvalid, "search: there is no context %q", req.Context).
			WithHint("there are: %s", strings.Join(known, ", "))
	}
	if longest := max(len(req.Prefix), len(req.Text)); longest > maxTerm {
		return fleet.Errorf(fleet.CodeInvalid, "search: the text has %d bytes, at most %d are allowed", longest, maxTerm)
	}
	return nil
}

// includesContext reports whether a search covers a context.
func includesContext(req api.SearchRequest, context string) bool {
	return req.Context == contextAll || req.Context == context
}

// searchPrefix answers with the ids that begin with a prefix, by context.
func (a *API) searchPrefix(v *state.View, g *grant, q query, req api.SearchRequest) (any, error) {
	answer := api.SearchAnswer{Matches: map[string][]string{}, Truncations: map[string]bool{}, SearchMeta: a.answerMeta(v)}
	for _, context := range idContexts {
		if !includesContext(req, context) {
			continue
		}
		found := []string{}
		listMatchingIDs(v, g, q.namespace, context, func(id string) bool {
			if strings.HasPrefix(id, req.Prefix) {
				found = append(found, id)
			}
			return len(found) <= maxMatches
		}, req.Prefix)
		answer.Truncations[context] = len(found) > maxMatches
		answer.Matches[context] = found[:min(len(found), maxMatches)]
	}
	return answer, nil
}

// answerMeta returns the index and leader fields that Nomad puts into the answer of a search.
func (a *API) answerMeta(v *state.View) api.SearchMeta {
	_, known := a.cfg.Cluster.Leader()
	return api.SearchMeta{Index: v.Index(), KnownLeader: known}
}

// listMatchingIDs calls more with the ids of a context of which the grant may know, in order, until it returns false. For
// pools and namespaces that includes ids without the prefix.
func listMatchingIDs(v *state.View, g *grant, ns, context string, more func(id string) bool, prefix string) {
	switch context {
	case contextAllocs:
		eachSeen(g, v.Allocs(ns, prefix), func(al *fleet.Alloc) bool { return more(string(al.ID)) })
	case contextDeployments:
		eachSeen(g, v.Deployments(ns, prefix), func(d *fleet.Deployment) bool { return more(string(d.ID)) })
	case contextEvals:
		eachSeen(g, v.Evals(ns, prefix), func(e *fleet.Evaluation) bool { return more(string(e.ID)) })
	case contextJobs:
		eachSeen(g, v.Jobs(ns, prefix), func(j *fleet.Job) bool { return more(string(j.ID)) })
	case contextNodes:
		eachSeen(g, v.Nodes(prefix), func(n *fleet.Node) bool { return more(string(n.ID)) })
	case contextPools:
		eachSeen(g, v.Pools(), func(p *fleet.Pool) bool { return more(p.Name) })
	case contextNamespaces:
		eachSeen(g, v.Namespaces(), func(n *fleet.Namespace) bool { return more(n.Name) })
	}
}

// eachSeen calls f with the items of which the grant may know, until f returns false.
func eachSeen[T any](g *grant, items iter.Seq[T], f func(T) bool) {
	for it := range items {
		if g.allowsItem(it) && !f(it) {
			return
		}
	}
}

// fuzzyMatcher collects the names that contain a text, by context. It keeps the best ones, at most 4*maxFuzzy of a context.
type fuzzyMatcher struct {
	text  string // lower case
	found map[string][]api.FuzzyMatch
}

// matchName adds a name to the context's matches if it contains the text in any case. scope are the ids of the
// objects that the name is in.
func (f *fuzzyMatcher) matchName(context, name string, scope ...string) {
	if strings.Contains(strings.ToLower(name), f.text) {
		found := append(f.found[context], api.FuzzyMatch{ID: name, Scope: scope})
		if len(found) == 4*maxFuzzy {
			f.sortMatches(found)
			found = found[:maxFuzzy+1] // the last one says that there are more
		}
		f.found[context] = found
	}
}

// searchFuzzy answers with the names that contain a text, by context. Evaluations and deployments, which have no
// names, are found by the prefix of their ids.
func (a *API) searchFuzzy(v *state.View, g *grant, q query, req api.SearchRequest) (any, error) {
	if len(req.Text) < minTerm {
		return nil, fleet.Errorf(fleet.CodeInvalid, "search: %q is too short, at least %d bytes are needed", req.Text, minTerm)
	}
	f := &fuzzyMatcher{text: strings.ToLower(req.Text), found: map[string][]api.FuzzyMatch{}}
	f.matchJobs(v, g, q, req)
	if includesContext(req, contextAllocs) {
		eachSeen(g, v.Allocs(q.namespace, ""), func(al *fleet.Alloc) bool {
			f.matchName(contextAllocs, al.Name, al.Namespace, string(al.ID))
			return true
		})
	}
	if includesContext(req, contextNodes) {
		eachSeen(g, v.Nodes(""), func(n *fleet.Node) bool { f.matchName(contextNodes, n.Name, string(n.ID)); return true })
	}
	if includesContext(req, contextPools) {
		eachSeen(g, v.Pools(), func(p *fleet.Pool) bool { f.matchName(contextPools, p.Name); return true })
	}
	if includesContext(req, contextNamespaces) {
		eachSeen(g, v.Namespaces(), func(n *fleet.Namespace) bool { f.matchName(contextNamespaces, n.Name); return true })
	}
	for _, context := range []string{contextEvals, contextDeployments} {
		if includesContext(req, context) {
			listMatchingIDs(v, g, q.namespace, context, func(id string) bool {
				f.found[context] = append(f.found[context], api.FuzzyMatch{ID: id})
				return len(f.found[context]) <= maxFuzzy
			}, f.text)
		}
	}
	answer := struct {
		Matches     map[string][]api.FuzzyMatch
		Truncations map[string]bool
		api.SearchMeta
	}{f.found, map[string]bool{}, a.answerMeta(v)}
	for context, found := range f.found {
		f.sortMatches(found)
		answer.Truncations[context] = len(found) > maxFuzzy
		f.found[context] = found[:min(len(found), maxFuzzy)]
	}
	return answer, nil
}

// matchJobs searches the jobs of the namespace, and the names of groups, services, tasks, images and commands in
// them.
func (f *fuzzyMatcher) matchJobs(v *state.View, g *grant, q query, req api.SearchRequest) {
	for j := range v.Jobs(q.namespace, "") {
		if !g.allowsItem(j) {
			continue
		}
		job := []string{j.Namespace, string(j.ID)}
		if includesContext(req, contextJobs) {
			f.matchName(contextJobs, j.Name, job...)
		}
		look := func(context, name string, scope []string) {
			if name != "" && includesContext(req, context) {
				f.matchName(context, name, scope...)
			}
		}
		for _, g := range j.TaskGroups {
			group := append(slices.Clone(job), g.Name)
			look("groups", g.Name, job)
			for _, s := range g.Services {
				look("services", s.Name, group)
			}
			for _, t := range g.Tasks {
				task := append(slices.Clone(group), t.Name)
				look("tasks", t.Name, group)
				for _, s := range t.Services {
					look("services", s.Name, task)
				}
				look("images", text(t.Config["image"]), task)
				look("commands", text(t.Config["command"]), task)
				look("classes", text(t.Config["class"]), task)
			}
		}
	}
}

// text returns a value of a task's configuration if it is a string, else "".
func text(v any) string {
	s, _ := v.(string)
	return s
}

// sortMatches orders matches by the position of the text in the name, then by length, name and scope.
func (f *fuzzyMatcher) sortMatches(found []api.FuzzyMatch) {
	at := func(m api.FuzzyMatch) int { return strings.Index(strings.ToLower(m.ID), f.text) }
	slices.SortStableFunc(found, func(x, y api.FuzzyMatch) int {
		return cmp.Or(cmp.Compare(at(x), at(y)), cmp.Compare(len(x.ID), len(y.ID)), strings.Compare(x.ID, y.ID),
			slices.Compare(x.Scope, y.Scope))
	})
}
