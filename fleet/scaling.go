package fleet

// Kinds of scaling.
const (
	ScalingHorizontal  = "horizontal"
	ScalingVerticalCPU = "vertical_cpu"
	ScalingVerticalMem = "vertical_mem"
)

// ScalingPolicy bounds what a scaler may set a group's count or a task's resources to.
type ScalingPolicy struct {
	Type    string // default ScalingHorizontal
	Enabled bool   // default true
	Min     *int   // default: the group's count
	Max     *int
	Policy  map[string]any // the scaler's own
}

func (s *ScalingPolicy) preset() { s.Enabled = true }

func (s *ScalingPolicy) complete(count int) {
	setDefault(&s.Type, ScalingHorizontal)
	if s.Min == nil && s.Type == ScalingHorizontal {
		s.Min = &count
	}
}
