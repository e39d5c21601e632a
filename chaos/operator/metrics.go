package operator

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Metrics are a hub's figures: values by name with labels, as they are written:
// skerry_nodes{status="ready"}.
type Metrics map[string]float64

// Metrics reads GET /v1/metrics.
func (h Hub) Metrics(ctx context.Context) (Metrics, error) {
	var text []byte
	err := h.Call(ctx, http.MethodGet, "/v1/metrics?format=prometheus", nil, &text)
	return parseMetrics(string(text)), err
}

// Sum adds up a metric over all its labels.
func (m Metrics) Sum(name string) float64 {
	sum := m[name]
	for key, value := range m {
		if strings.HasPrefix(key, name+"{") {
			sum += value
		}
	}
	return sum
}

// parseMetrics reads Prometheus' text; lines that are none of it are left out.
func parseMetrics(text string) Metrics {
	m := Metrics{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if value, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			m[strings.TrimSpace(line[:i])] = value
		}
	}
	return m
}
