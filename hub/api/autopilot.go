package api

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"skerry/api"
	"skerry/fleet"
)

// autopilotRules is the autopilot configuration that every cluster answers with. It cannot be changed.
var autopilotRules = api.AutopilotConfig{
	LastContactThreshold: HubAnswerTimeout.String(), ServerStabilizationTime: "0s", MaxTrailingLogs: maxTrailing, DisableUpgradeMigration: true,
}

// whyFixed has for each field of the autopilot configuration the reason why it cannot be changed.
var whyFixed = map[string]string{
	"CleanupDeadServers":      "a hub that is away may come back; skerry operator raft remove-peer removes one that is gone for good",
	"LastContactThreshold":    "it is how long a hub may take to answer a health check",
	"MaxTrailingLogs":         "a hub that is further behind is shown as not healthy, which has no other effect",
	"MinQuorum":               "it limits the removal of dead servers, and hubs are never removed automatically",
	"ServerStabilizationTime": "a hub votes as soon as it has joined",
	"EnableRedundancyZones":   "it is a feature of Nomad Enterprise",
	"DisableUpgradeMigration": "migration at an upgrade is a feature of Nomad Enterprise",
	"EnableCustomUpgrades":    "it is a feature of Nomad Enterprise",
	"CreateIndex":             "it is stored nowhere",
	"ModifyIndex":             "it is stored nowhere",
}

// autopilotConfiguration answers with the fixed configuration.
func (a *API) autopilotConfiguration(*http.Request) (any, fleet.Index, error) {
	return autopilotRules, a.cfg.State.View().Index(), nil
}

// storeAutopilot answers true to a configuration that equals the fixed one, and refuses any other with the reason
// for each field. Nothing is stored.
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
