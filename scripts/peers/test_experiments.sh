#!/bin/sh
# Whole runs built against the PyTorch of the peers' environment: test_experiments.sh PYTHON. Launchers and ledgers, which
# hold no tensor, are left to make test.
exec "$(dirname "$0")/test_torch.sh" "$1" ./cmd/bench ./cmd/run ./experiments ./experiments/bench ./experiments/icl ./experiments/leverplus ./experiments/measure \
	./experiments/sweep ./experiments/tasks ./experiments/workload/...
