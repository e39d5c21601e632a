package api

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
)

// eventWriteTimeout is how long the write of one event line may take before the stream ends.
const eventWriteTimeout = 30 * time.Second

func (a *API) eventEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/event/stream", filteredAnswer, a.eventStream},
	}
}

// eventStream streams events as lines of JSON, one for each log entry that has wanted events, until the client
// leaves or does not read in time.
func (a *API) eventStream(w http.ResponseWriter, r *http.Request) {
	after, stream, err := a.openEvents(r)
	if err != nil {
		a.writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	a.setAnswerHeaders(w, after)
	sink := slowSink{w, http.NewResponseController(w)}
	if err := sink.rc.Flush(); err != nil {
		a.writeError(w, err)
		return
	}
	if err := stream(r.Context(), sink); err != nil {
		a.cfg.Log.Info("event stream ended", "client", r.RemoteAddr, "error", err)
	}
}

// openEvents opens the event stream that the request's parameters describe. Unless stale is given, this hub catches
// up with the leader first.
func (a *API) openEvents(r *http.Request) (after fleet.Index, stream func(context.Context, io.Writer) error, err error) {
	q, err := parseQuery(r)
	if err != nil {
		return 0, nil, err
	}
	if !q.stale {
		if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
			return 0, nil, err
		}
	}
	from := q.minIndex
	if s := r.URL.Query().Get("after"); s != "" {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil || from != 0 {
			return 0, nil, fleet.Errorf(fleet.CodeInvalid, "read the parameter after: %q is not a whole number, or the parameter index is given too", s)
		}
		from = fleet.Index(n) + 1
	}
	topics := r.URL.Query()["topic"]
	if err := checkTopics(grantOf(r), topics, q.namespace); err != nil {
		return 0, nil, err
	}
	return a.cfg.Events.Open(topics, q.namespace, from, func(v *state.View) (func(*state.Event) bool, error) {
		g := grantOf(r)
		return g.seesEvent, a.renewGrant(r, g, v)
	})
}

// kindOfTopic has the kind of the objects of a topic. Events of another topic are for management tokens.
var kindOfTopic = map[string]acl.Kind{
	state.TopicJob: acl.KindNamespace, state.TopicDeployment: acl.KindNamespace, state.TopicEvaluation: acl.KindNamespace,
	state.TopicAllocation: acl.KindNamespace, state.TopicService: acl.KindNamespace,
	state.TopicVariable: acl.KindVariables, state.TopicNode: acl.KindSite, state.TopicPool: acl.KindNodePool,
}

// checkTopics refuses a stream for a topic of which the token may have no event. Without topics, the stream has what
// the token may know of.
func checkTopics(g *grant, topics []string, namespace string) error {
	for _, topic := range topics {
		topic, _, _ = strings.Cut(topic, ":")
		kind := kindOfTopic[topic]
		missing := acl.Requirement{Kind: kind, Capability: g.capabilitiesOn(kind)[0]}
		allowed := topic == "*" || g.rules.IsManagement()
		switch kind {
		case "":
			missing = acl.Requirement{Kind: acl.KindManagement}
		case acl.KindNamespace:
			missing.Name = namespace
			allowed = allowed || g.rules.Allows(missing)
		default:
			allowed = allowed || g.rules.AllowsAny(kind, missing.Capability)
		}
		if !allowed {
			return refusal(g.rules, missing)
		}
	}
	return nil
}

// seesEvent reports whether an event may be part of the request's stream.
func (g *grant) seesEvent(e *state.Event) bool {
	o := object{kind: kindOfTopic[e.Topic], name: e.Namespace}
	switch o.kind {
	case "":
		return g.rules.IsManagement()
	case acl.KindNodePool:
		o.name = e.Key
	case acl.KindVariables:
		o.path = e.Key
	case acl.KindSite:
		if e.Node != nil {
			o.name = e.Node.AtSite()
		}
	}
	return g.allowsObject(o)
}

// slowSink writes each line to the client and flushes it. A write fails after eventWriteTimeout.
type slowSink struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// Write sends b to the client at once. It fails if the client does not accept it within eventWriteTimeout.
func (s slowSink) Write(b []byte) (int, error) {
	// A writer without deadlines is one that never blocks for long.
	_ = s.rc.SetWriteDeadline(time.Now().Add(eventWriteTimeout))
	n, err := s.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, s.rc.Flush()
}
