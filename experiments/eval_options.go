package experiments

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

// by is what the questions are grouped by.
func (o EvalOptions) by() string {
	if o.Cluster == nil {
		return "image"
	}
	return *o.Cluster
}
