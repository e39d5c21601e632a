package client

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"strings"
)

// Metrics are a hub's metrics: values by name with labels in Prometheus' notation, as in
// skerry_nodes{status="ready"}.
type Metrics map[string]float64

// maxMetrics is the largest text that is read, in bytes.
const maxMetrics = 256 << 20

// Metrics reads the metrics of the hub.
func (c *Client) Metrics(ctx context.Context) (Metrics, error) {
	out, err := c.openStream(ctx, "/v1/metrics", url.Values{"format": {"prometheus"}})
	if err != nil {
		return nil, err
	}
	defer out.Close()
	text, err := io.ReadAll(io.LimitReader(out, maxMetrics))
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

// parseMetrics reads Prometheus' text format. It skips lines that are no metric.
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
