package hub

import (
	"cmp"

	"skerry/fleet"
	"skerry/hub/audit"
)

// auditDestinations returns where the entries of the audit are sent.
func (c Config) auditDestinations() (to []audit.Destination, err error) {
	if c.AuditCollector == "" && cmp.Or(c.AuditCollectorAuthorization, c.AuditCollectorCA) != "" || c.AuditSyslog == "" && c.AuditSyslogCA != "" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "send the audit: there is a file for a destination, and no destination").
			WithHint("give --audit-collector or --audit-syslog")
	}
	if c.AuditCollector != "" {
		collector, err := audit.NewCollector(c.AuditCollector, c.AuditCollectorAuthorization, c.AuditCollectorCA)
		if err != nil {
			return nil, err
		}
		to = append(to, collector)
	}
	if c.AuditSyslog != "" {
		server, err := audit.NewSyslog(c.AuditSyslog, c.AuditSyslogCA, c.Name)
		if err != nil {
			return nil, err
		}
		to = append(to, server)
	}
	return to, nil
}
