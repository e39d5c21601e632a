package api

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"skerry/api"
	"skerry/fleet"
)

// serveMetrics answers with this hub's metrics: in Prometheus' format, or as JSON with format=json or without an
// Accept header, as Nomad's Go client asks.
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

// metricsSummary gathers this hub's metrics in the shape of Nomad's JSON.
func (a *API) metricsSummary() (api.MetricsSummary, error) {
	s := api.MetricsSummary{
		Timestamp: a.cfg.Now().UTC().Format(time.RFC3339), Gauges: []api.GaugeValue{}, Points: []struct{}{}, Counters: []api.SampledValue{}, Samples: []api.SampledValue{},
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
				s.Gauges = append(s.Gauges, api.GaugeValue{Name: f.GetName(), Value: m.GetGauge().GetValue(), Labels: labels})
			case m.GetCounter() != nil:
				n := m.GetCounter().GetValue()
				s.Counters = append(s.Counters, api.SampledValue{Name: f.GetName(), Count: int(n), Sum: n, Labels: labels})
			case m.GetHistogram() != nil:
				s.Samples = append(s.Samples, sampleOf(f.GetName(), m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum(), labels))
			case m.GetSummary() != nil:
				s.Samples = append(s.Samples, sampleOf(f.GetName(), m.GetSummary().GetSampleCount(), m.GetSummary().GetSampleSum(), labels))
			}
		}
	}
	return s, nil
}

// sampleOf returns a histogram or summary as Nomad's sample, with its mean.
func sampleOf(name string, count uint64, sum float64, labels map[string]string) api.SampledValue {
	v := api.SampledValue{Name: name, Count: int(count), Sum: sum, Labels: labels}
	if count > 0 {
		v.Mean = sum / float64(count)
	}
	return v
}
