package events

import (
	"iter"
	"slices"
	"strings"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/state"
)

// all stands for every topic, or every key of a topic.
const all = "*"

// maxTopics is how many topics a request may name.
const maxTopics = 256

// topics are the topics that a request may name.
var topics = []string{
	all, state.TopicJob, state.TopicNode, state.TopicDeployment, state.TopicEvaluation, state.TopicAllocation,
	state.TopicService, state.TopicPool, state.TopicVariable,
	state.TopicACLPolicy, state.TopicACLRole, state.TopicACLToken, state.TopicACLAuthMethod, state.TopicACLBindingRule,
}

// Request selects events: by topic and key, by namespace, and from an index on.
type Request struct {
	topics    map[string][]string // keys by topic
	namespace string              // "*": all
	from      fleet.Index         // the first entry that counts; 0: the oldest that is kept
	filter    Filter              // what the client may have; NewRequest: everything
}

// NewRequest parses topics ("Job", "Job:shop", "*"; none: all), and returns a request for a namespace ("*": all)
// and a first index (0: the oldest that is kept). Errors are CodeInvalid.
func NewRequest(named []string, namespace string, from fleet.Index) (Request, error) {
	r := Request{topics: map[string][]string{}, namespace: namespace, from: from, filter: everything}
	if len(named) > maxTopics {
		return r, fleet.Errorf(fleet.CodeInvalid, "stream events: %d topics are named, at most %d are taken", len(named), maxTopics)
	}
	if len(named) == 0 {
		named = []string{all}
	}
	for _, s := range named {
		topic, key, ok := strings.Cut(s, ":")
		if !ok {
			key = all
		}
		if !slices.Contains(topics, topic) {
			return r, fleet.Errorf(fleet.CodeInvalid, "stream events: there is no topic %q", topic).
				WithHint("there are: %s", strings.Join(topics, ", "))
		}
		if key == "" {
			return r, fleet.Errorf(fleet.CodeInvalid, "stream events: %q names no key", s).
				WithHint("write it like Job:shop, or Job for all")
		}
		r.topics[topic] = append(r.topics[topic], key)
	}
	return r, nil
}

// everything is the Filter that leaves out nothing.
func everything(*state.View) (func(*state.Event) bool, error) {
	return func(*state.Event) bool { return true }, nil
}

// startPosition returns the index after which the stream begins. The window holds the entries after floor up to
// newest; an index outside is an error.
func (r Request) startPosition(floor, newest fleet.Index) (fleet.Index, error) {
	switch {
	case r.from == 0:
		return floor, nil
	case r.from <= floor:
		return 0, indexTooOld(r.from, floor)
	case r.from > newest+1:
		return 0, fleet.Errorf(fleet.CodeInvalid, "stream events: index %d is not there yet, the newest is %d", r.from, newest).
			WithHint("the cluster may have been put back to an older snapshot; read the state again and begin with index 0")
	}
	return r.from - 1, nil
}

// indexTooOld returns the error for a stream that would need entries before the window, which begins after floor.
func indexTooOld(from, floor fleet.Index) *fleet.Error {
	return fleet.Errorf(fleet.CodeConflict, "stream events: index %d is older than the window, which begins at %d", from, floor+1).
		WithHint("events in between are not kept any more: read the lists again, and go on from their index")
}

// matchingEvents iterates over those events of one log entry that the request selects and the client may have, in order.
func (r Request) matchingEvents(happened []state.Event, sees func(*state.Event) bool) iter.Seq[*state.Event] {
	return func(yield func(*state.Event) bool) {
		for i := range happened {
			if e := &happened[i]; r.matchesEvent(e) && sees(e) && !yield(e) {
				return
			}
		}
	}
}

// matchesEvent reports whether the request selects the event.
func (r Request) matchesEvent(e *state.Event) bool {
	if e.Namespace != "" && r.namespace != all && e.Namespace != r.namespace {
		return false
	}
	return matchesKeys(r.topics[e.Topic], e) || matchesKeys(r.topics[all], e)
}

// matchesKeys reports whether one of the keys is "*", the event's key or one of its filter keys.
func matchesKeys(keys []string, e *state.Event) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		return k == all || k == e.Key || slices.Contains(e.FilterKeys, k)
	})
}

// newEvent converts an event of the log entry index to the API's type.
func newEvent(index fleet.Index, e *state.Event) api.Event {
	return api.Event{
		Topic: e.Topic, Type: e.Type, Key: e.Key, Namespace: e.Namespace, FilterKeys: e.FilterKeys, Index: index,
		Payload: api.EventPayload{
			Job: e.Job, Deleted: e.Deleted, Node: e.Node, Deployment: e.Deployment, Evaluation: e.Evaluation, Allocation: e.Allocation,
			NodePool: e.Pool, Service: e.Service, Variable: e.Variable,
			ACLPolicy: e.ACLPolicy, ACLRole: e.ACLRole, ACLToken: e.ACLToken, AuthMethod: e.ACLAuthMethod, ACLBindingRule: e.ACLBindingRule,
		},
	}
}
