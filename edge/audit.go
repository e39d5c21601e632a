package edge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"skerry/edge/audit"
	"skerry/fleet"
)

// auditDir has the lines of the edge's audit.
const auditDir = "audit"

// openAudit opens the audit of what people on site do. A damaged one is set aside, and another is begun: an agent that
// nobody can restart must start.
func (e *Edge) openAudit() error {
	cfg := audit.Config{
		Dir: e.dir.File(auditDir), Journal: e.journal, Now: e.cfg.Now, Log: e.log.With("component", "audit"),
	}
	var err error
	if e.audit, err = audit.Open(cfg); err == nil {
		return nil
	}
	aside := fmt.Sprintf("%s.damaged-%d", cfg.Dir, e.cfg.Now().Unix())
	if failed := os.Rename(cfg.Dir, aside); failed != nil {
		return fmt.Errorf("open edge: %w: %w", err, failed)
	}
	e.log.Error("audit not readable: it is set aside, and another one is begun", "path", aside, "error", err)
	if e.audit, err = audit.Open(cfg); err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	e.audit.Append(context.Background(), fleet.SiteAction{Verb: fleet.SiteAuditDamaged, Object: filepath.Base(aside)})
	return nil
}
