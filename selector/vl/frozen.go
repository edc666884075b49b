package vl

import (
	"fmt"

	"fulcrum/selector/tokens"
)

// NewFrozen returns the model that a config.json describes with random weights, drawn on the device from the seed: what
// options trains (adapters, whole parts) as in a model from a folder, everything else frozen in options.DType. Benchmarks
// measure published shapes with it, for which no file has to exist.
func NewFrozen(options Options, config []byte, device string, seed int64) (*Model, error) {
	cfg, err := ParseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	none := "" // no folder, but a model that is not trained from scratch either
	options.Path, options.Adapter = &none, nil
	if err := options.fits(cfg); err != nil {
		return nil, err
	}
	w, err := tokens.Random(cfg.layout(options), options.Options, device, cfg.InitStd, seed)
	if err != nil {
		return nil, err
	}
	return newModel(w, cfg, options, GenerationConfig{})
}
