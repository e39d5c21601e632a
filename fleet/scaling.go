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

// Bounds of what is kept of how a job was scaled.
const (
	ScalingEventsKept = 20 // of a group
	MaxScalingMessage = 4 << 10
	MaxScalingMeta    = 16 << 10 // bytes of its JSON
)

// ScalingEvent is one step of a group's scaling, or what a scaler had to say about it.
type ScalingEvent struct {
	Time          int64 // UnixNano, the hub's clock
	Count         *int  // nil: it was not changed
	PreviousCount int
	Message       string
	Error         bool
	Meta          map[string]any
	EvalID        *EvalID
	CreateIndex   Index
}
