package edge

import "context"

// ConfigsWithImages is configsWithImages.
func (e *Edge) ConfigsWithImages(ctx context.Context, driver string) ([]map[string]any, error) {
	return e.configsWithImages(ctx, driver)
}

// NewCollecting makes an Edge that can only collect images.
func NewCollecting(cfg Config) *Edge { return &Edge{cfg: cfg} }

// CollectImages is collectImages.
func (e *Edge) CollectImages(ctx context.Context) { e.collectImages(ctx) }
