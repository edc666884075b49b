#!/bin/sh
# Makes the virtual environment that the peers run in: install.sh FOLDER. Python 3.10 or later ($PYTHON, else python3);
# 5 GB, most of it the CUDA libraries that PyTorch's package wants even on a CPU.
set -eu
folder=$1
wanted=$(dirname "$0")/requirements.txt
cmp -s "$wanted" "$folder/requirements.txt" && exit
mkdir -p "$folder"
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
cp "$wanted" "$folder/requirements.txt"
