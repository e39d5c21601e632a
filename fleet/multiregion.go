package fleet

// Multiregion registers a job in several regions, one after the other.
type Multiregion struct {
	Strategy *MultiregionStrategy
	Regions  []MultiregionRegion
}

// MultiregionStrategy is how a rollout goes from region to region.
type MultiregionStrategy struct {
	MaxParallel int
	OnFailure   string
}

// MultiregionRegion is what differs in one region.
type MultiregionRegion struct {
	Name        string
	Count       int
	Datacenters []string
	NodePool    string
	Meta        map[string]string
}
