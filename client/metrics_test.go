package client

import "testing"

const sample = `# HELP skerry_nodes Edges that the cluster knows.
# TYPE skerry_nodes gauge
skerry_nodes{status="disconnected"} 2
skerry_nodes{status="ready"} 998
process_cpu_seconds_total 12.5
go_info{version="go1.26 linux/amd64"} 1
no value
`

func TestMetricsAreRead(t *testing.T) {
	m := parseMetrics(sample)
	if m[`skerry_nodes{status="ready"}`] != 998 || m["process_cpu_seconds_total"] != 12.5 || m[`go_info{version="go1.26 linux/amd64"}`] != 1 {
		t.Errorf("read %v", m)
	}
	if sum := m.Sum("skerry_nodes"); sum != 1000 || len(m) != 4 {
		t.Errorf("%d metrics, %v nodes", len(m), sum)
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add(sample)
	f.Fuzz(func(t *testing.T, text string) {
		if n := len(parseMetrics(text)); n > len(text) {
			t.Errorf("%d metrics in %d bytes", n, len(text))
		}
	})
}
