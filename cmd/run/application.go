package main

import "fulcrum/experiments"

func newApp() App { return experiments.App{} }
