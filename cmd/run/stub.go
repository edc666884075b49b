package main

import (
	"context"
	"errors"

	"fulcrum/configs"
)

// stub stands in for the experiments package until it exists.
type stub struct{}

func newApp() App { return stub{} }

var errStub = errors.New("this build composes configs only")

func (stub) Schema() (*configs.Schema, error)             { return nil, nil }
func (stub) Run(context.Context, *configs.Composed) error { return errStub }
func (stub) Verb(context.Context, string, []string) error { return errStub }
func (stub) Sweep(context.Context, configs.Request, [][]string, *configs.Composed) error {
	return errStub
}
