#!/bin/sh
# Installs what `make build` has built:
#
#   scripts/install.sh PREFIX        PREFIX/bin/run, its libraries, and completion for bash, zsh and fish
#
# The program and its libraries lie in PREFIX/lib/fulcrum, bin/run is a link. DESTDIR is put before PREFIX, as packagers
# want it. Nothing installed looks into the folder that it was built in.
set -eu
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: scripts/install.sh PREFIX" >&2; exit 2; }
to=${DESTDIR:-}$1
home=$to/lib/fulcrum
mkdir -p "$home/lib/unused" "$to/bin" "$to/share/bash-completion/completions" "$to/share/zsh/site-functions" "$to/share/fish/vendor_completions.d"
# New files take the place of old ones: a program at work keeps the one that it has mapped.
for library in bin/lib/unused/*.so.* bin/lib/libcgotorch.so bin/lib/libfulcrum_torch.so; do
	if [ ! -e "$library" ]; then continue; fi # other libtorches than Debian's have no unused libraries
	install -m 644 "$library" "$home/lib/.new" && mv "$home/lib/.new" "$home/${library#bin/}"
done
install -m 755 bin/run "$home/.new"
go run ./scripts/runpath "$home/.new" '$ORIGIN/lib'
mv "$home/.new" "$home/run"
ln -sfn ../lib/fulcrum/run "$to/bin/run"
bin/run --shell-completion install=bash >"$to/share/bash-completion/completions/run"
{ echo '#compdef run'; bin/run --shell-completion install=zsh | sed '/compinit/d'; echo 'hydra_zsh_completion "$@"'; } >"$to/share/zsh/site-functions/_run"
bin/run --shell-completion install=fish >"$to/share/fish/vendor_completions.d/run.fish"
echo "installed $to/bin/run; bash, zsh and fish complete its words in new shells"
