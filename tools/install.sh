#!/bin/sh
# Install this project, editable, with one extra and the pinned versions: tools/install.sh PYTHON EXTRA
set -eu

python=$1
extra=$2

if [ "$(uname -s)" = Linux ] && ! "$python" -c 'import torch' 2>/dev/null; then
    torch=$(sed -n '/^torch==/p' constraints.txt)
    if ! "$python" -m pip install --quiet --dry-run --no-deps "$torch+cpu" >/dev/null 2>&1; then
        echo "note: your package index has no CPU build of $torch, so pip takes the default one, which" >&2
        echo "may bring GPU packages of several GB. README.md, 'Install', says how to get the CPU build." >&2
    fi
fi

echo "installing torch-ir with its $extra packages; the first time takes a minute or more"
exec "$python" -m pip install --quiet --constraint constraints.txt --editable ".[$extra]"
