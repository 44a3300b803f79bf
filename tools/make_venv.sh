#!/bin/sh
# Make a virtual environment with the first interpreter that can: tools/make_venv.sh FOLDER
# $PYTHON, if set, is the only candidate. A name on PATH need not run, so each is asked.
set -eu

can='import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'

for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    if "$python" -c "$can" 2>/dev/null; then
        echo "making $1 with $("$python" -c 'import sys; print(sys.executable)')"
        exec "$python" -m venv --clear "$1"
    fi
done

echo "error: no Python 3.11, 3.12, 3.13 or 3.14 with the venv module was found (tried: ${PYTHON:-python3, python3.11 to python3.14})." >&2
echo "Install one (Debian and Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python" >&2
exit 1
