package api

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"skerry/fleet"
)

// metricsSummary is what Nomad's clients read of /v1/metrics: values by name.
type metricsSummary struct {
	Timestamp string
	Gauges    []gaugeValue
	Points    []struct{}
	Counters  []sampledValue
	Samples   []sampledValue
}

type gaugeValue struct {
	Name   string
	Value  float64
	Labels map[string]string
}

type sampledValue struct {
	Name                              string
	Count                             int
	Rate, Sum, Min, Max, Mean, Stddev float64
	Labels                            map[string]string
}

// serveMetrics serves Prometheus' format, and JSON with format=json. Nomad's published client says
// neither what it wants nor what it accepts, and reads JSON.
func (a *API) serveMetrics(w http.ResponseWriter, r *http.Request) {
	switch format := r.URL.Query().Get("format"); {
	case format == "json", format == "" && r.Header.Get("Accept") == "":
		summary, err := a.metricsSummary()
		a.setAnswerHeaders(w, a.cfg.State.View().Index())
		if err != nil {
			a.writeError(w, err)
			return
		}
		a.writeAnswer(w, r, summary)
	case format == "", format == "prometheus":
		promhttp.HandlerFor(a.cfg.Metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	default:
		a.writeError(w, fleet.Errorf(fleet.CodeInvalid, "read metrics: the format is prometheus or json, not %q", format))
	}
}

func (a *API) metricsSummary() (metricsSummary, error) {
	s := metricsSummary{
		Timestamp: a.cfg.Now().UTC().Format(time.RFC3339), Gauges: []gaugeValue{}, Points: []struct{}{}, Counters: []sampledValue{}, Samples: []sampledValue{},
	}
	families, err := a.cfg.Metrics.Gather()
	if err != nil {
		return s, err
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.GetGauge() != nil:
				s.Gauges = append(s.Gauges, gaugeValue{f.GetName(), m.GetGauge().GetValue(), labels})
			case m.GetCounter() != nil:
				n := m.GetCounter().GetValue()
				s.Counters = append(s.Counters, sampledValue{Name: f.GetName(), Count: int(n), Sum: n, Labels: labels})
			case m.GetHistogram() != nil:
				s.Samples = append(s.Samples, sampleOf(f.GetName(), m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum(), labels))
			case m.GetSummary() != nil:
				s.Samples = append(s.Samples, sampleOf(f.GetName(), m.GetSummary().GetSampleCount(), m.GetSummary().GetSampleSum(), labels))
			}
		}
	}
	return s, nil
}

func sampleOf(name string, count uint64, sum float64, labels map[string]string) sampledValue {
	v := sampledValue{Name: name, Count: int(count), Sum: sum, Labels: labels}
	if count > 0 {
		v.Mean = sum / float64(count)
	}
	return v
}
