package api

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"skerry/api"
	"skerry/fleet"
)

// autopilotRules are the same in every cluster: they cannot be changed.
var autopilotRules = api.AutopilotConfig{
	LastContactThreshold: HubAnswerTimeout.String(), ServerStabilizationTime: "0s", MaxTrailingLogs: maxTrailing, DisableUpgradeMigration: true,
}

// whyFixed says why a rule cannot be changed.
var whyFixed = map[string]string{
	"CleanupDeadServers":      "a hub that is away may come back; skerry operator raft remove-peer removes one that is gone for good",
	"LastContactThreshold":    "that is how long a hub is waited for when it is asked how far it is",
	"MaxTrailingLogs":         "a hub that is further behind is shown as not healthy, and nothing follows from that",
	"MinQuorum":               "it bounds the removal of dead servers, and no hub is removed by itself",
	"ServerStabilizationTime": "a hub votes as soon as it has joined",
	"EnableRedundancyZones":   "it is of Nomad Enterprise",
	"DisableUpgradeMigration": "migrating at an upgrade is of Nomad Enterprise",
	"EnableCustomUpgrades":    "it is of Nomad Enterprise",
	"CreateIndex":             "it is stored nowhere",
	"ModifyIndex":             "it is stored nowhere",
}

func (a *API) autopilotConfiguration(*http.Request) (any, fleet.Index, error) {
	return autopilotRules, a.cfg.State.View().Index(), nil
}

// storeAutopilot accepts a configuration that changes nothing. It refuses any other, and says of
// each rule why it cannot be changed.
func (a *API) storeAutopilot(r *http.Request) (answer any, index fleet.Index, err error) {
	asked := autopilotRules
	if err := a.decodeBody(r, &asked); err != nil {
		return nil, 0, err
	}
	var refused []string
	rules, wanted := reflect.ValueOf(autopilotRules), reflect.ValueOf(asked)
	for i := range rules.NumField() {
		if name := rules.Type().Field(i).Name; !wanted.Field(i).Equal(rules.Field(i)) {
			refused = append(refused, fmt.Sprintf("%s is %v, and cannot become %v: %s", name, rules.Field(i), wanted.Field(i), whyFixed[name]))
		}
	}
	if len(refused) > 0 {
		return nil, 0, fleet.Errorf(fleet.CodeUnsupported, "store the autopilot configuration: %s", strings.Join(refused, "; ")).
			WithHint("leave it as /v1/operator/autopilot/configuration shows it")
	}
	checked, given, err := checkIndex(r)
	if err != nil {
		return nil, 0, err
	}
	return !given || checked == autopilotRules.ModifyIndex, a.cfg.State.View().Index(), nil
}
