#!/bin/sh
# Servers that others wrote, asked through lvlm.backend: test_servers.sh PYTHON. They get a virtual environment of their own
# beside the peers' (llama.cpp is compiled: 20 minutes on two cores).
set -eu
here=$(dirname "$0")
folder=$(dirname "$(dirname "$1")")-servers
wanted=$here/requirements_servers.txt
if ! cmp -s "$wanted" "$folder/requirements.txt"; then
	"$1" -m venv "$folder"
	CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAMA_CURL=OFF" "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
	cp "$wanted" "$folder/requirements.txt"
fi
exec "$folder/bin/python" -m pytest --noconftest -q -rs --no-header -p no:cacheprovider -W ignore "$here/servers.py"
