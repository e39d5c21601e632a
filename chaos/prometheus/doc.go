// Package prometheus shows that Prometheus finds and scrapes what runs on a fleet: its
// published parts, of the version that Debian ships (2.42), read a configuration with
// nomad_sd_configs, ask a running hub for its services, and scrape these. Debian's own
// program is built without that discovery, so that it cannot be asked itself.
package prometheus
