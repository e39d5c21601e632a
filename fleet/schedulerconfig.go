package fleet

// How nodes are chosen among those that will do.
const (
	AlgorithmBinpack = "binpack" // fill nodes one after the other
	AlgorithmSpread  = "spread"  // use all nodes alike
)

// SchedulerConfiguration is what an operator sets for the scheduling of all jobs.
type SchedulerConfiguration struct {
	SchedulerAlgorithm            string // "": AlgorithmBinpack
	PreemptionConfig              PreemptionConfig
	MemoryOversubscriptionEnabled bool // memory_max of tasks counts
	RejectJobRegistration         bool
	PauseEvalBroker               bool // always false: the broker cannot be paused
	CreateIndex                   Index
	ModifyIndex                   Index
}

// PreemptionConfig says for jobs of which type others of a much lower priority may
// be evicted.
type PreemptionConfig struct {
	SystemSchedulerEnabled   bool
	SysBatchSchedulerEnabled bool
	BatchSchedulerEnabled    bool
	ServiceSchedulerEnabled  bool
}

// PoolScheduling overrides the SchedulerConfiguration for the nodes of a pool.
type PoolScheduling struct {
	SchedulerAlgorithm            string // "": not overridden
	MemoryOversubscriptionEnabled *bool  // nil: not overridden
}

// DefaultScheduling is what holds as long as nobody has set anything.
func DefaultScheduling() SchedulerConfiguration {
	return SchedulerConfiguration{
		SchedulerAlgorithm: AlgorithmBinpack, PreemptionConfig: PreemptionConfig{SystemSchedulerEnabled: true},
	}
}

// For returns the configuration as it holds for nodes of a pool (nil: of one
// without rules).
func (c SchedulerConfiguration) For(p *Pool) SchedulerConfiguration {
	if c.SchedulerAlgorithm == "" {
		c.SchedulerAlgorithm = AlgorithmBinpack
	}
	if p == nil || p.SchedulerConfiguration == nil {
		return c
	}
	if over := p.SchedulerConfiguration; over.SchedulerAlgorithm != "" {
		c.SchedulerAlgorithm = over.SchedulerAlgorithm
	}
	if over := p.SchedulerConfiguration; over.MemoryOversubscriptionEnabled != nil {
		c.MemoryOversubscriptionEnabled = *over.MemoryOversubscriptionEnabled
	}
	return c
}

// Preempts reports whether jobs of a type may have others evicted.
func (c SchedulerConfiguration) Preempts(jobType string) bool {
	switch jobType {
	case JobTypeService:
		return c.PreemptionConfig.ServiceSchedulerEnabled
	case JobTypeBatch:
		return c.PreemptionConfig.BatchSchedulerEnabled
	case JobTypeSystem:
		return c.PreemptionConfig.SystemSchedulerEnabled
	case JobTypeSysBatch:
		return c.PreemptionConfig.SysBatchSchedulerEnabled
	}
	return false
}
