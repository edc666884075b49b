package job

import (
	"strings"

	"fulcrum/internal/option"
)

// EvalOptions says how evaluations are judged (config section eval).
type EvalOptions struct {
	// questions that count as one: image, or a key of their records; null = by image where it is known
	Cluster *string `koanf:"cluster"`
}

// Validate refuses a name that no key has.
func (o EvalOptions) Validate() error {
	if o.Cluster != nil && strings.TrimSpace(*o.Cluster) == "" {
		return option.Errorf("cluster", "want image or a key of the records; null = by image where the data knows it")
	}
	return nil
}

// GroupedBy returns what the questions are grouped by: image, or a key of their records.
func (o EvalOptions) GroupedBy() string { return option.Or(o.Cluster, "image") }
