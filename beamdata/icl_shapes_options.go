package beamdata

// ICLShapesOptions is the section data.icl_shapes of the configuration.
type ICLShapesOptions struct {
	// seed of the world, its tongues included, and of the episodes; apart from the run's seed
	Seed int64 `koanf:"seed" constant:"true"`
	// training records: the selector's queries, and all candidates
	Records int `koanf:"records" range:"[1,10000000]"`
	// held-out records: asked only
	HeldOut int `koanf:"held_out" range:"[1,10000000]"`
	// episodes that the model learns from
	Episodes int `koanf:"episodes" range:"[1,100000000]"`
	// most demonstrations of an episode; those that validate have as many
	Shots int `koanf:"shots" range:"[1,16]" constant:"true"`
}

// DefaultICLShapesOptions returns the world and the episodes of exp=icl_shapes.
func DefaultICLShapesOptions() ICLShapesOptions {
	return ICLShapesOptions{Seed: 2026, Records: 1200, HeldOut: 300, Episodes: 14000, Shots: 2}
}
