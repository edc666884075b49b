#!/bin/sh
# What steps and generations launch, copy, wait for and allocate on CUDA, by a device that counts and computes nothing, so that no GPU
# is needed: test_device.sh PYTHON.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
"$here/test_torch.sh" "$1" build
DEVICE_PROGRAM=$here/../../build/peers/bin/run
export DEVICE_PROGRAM PYTHON="$1"
exec "$1" -m pytest -q -rs --no-header -p no:cacheprovider -W ignore "$here/counting_device.py"
