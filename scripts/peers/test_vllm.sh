#!/bin/sh
# A real vLLM behind lvlm.backend=vllm: test_vllm.sh PYTHON. Its CPU build gets a virtual environment of its own beside the peers', 2.4 GB.
# It pins torch+cpu, which the registry does not have, so nothing is resolved: all is named, and the rest, CUDA's libraries that the
# registry's torch loads among it, is the peers'.
set -eu
here=$(dirname "$0")
folder=$(dirname "$(dirname "$1")")-servers-vllm
wanted=$here/requirements_vllm.txt
if ! cmp -s "$wanted" "$folder/requirements.txt"; then
	"$1" -m venv "$folder"
	"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$wanted"
	"$1" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' \
		>"$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/zz_peers.pth"
	cp "$wanted" "$folder/requirements.txt"
fi
VLLM_PYTHON=$folder/bin/python exec "$1" -m pytest -q -rs --no-header -p no:cacheprovider -W ignore "$here/vllm_server.py"
