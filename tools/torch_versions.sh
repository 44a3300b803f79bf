#!/bin/sh
# Run all tests on versions of torch, each in an environment of its own: tools/torch_versions.sh 2.13 newest
# A build for GPUs takes gigabytes: set PIP_EXTRA_INDEX_URL to an index that has builds for the CPU.
set -u
failed=""
for version in "$@"; do
    venv=".venv-torch-$version"
    case $version in newest) wanted=torch ;; *) wanted="torch==$version.*" ;; esac
    [ -x "$venv/bin/python" ] || tools/make_venv.sh "$venv" || exit 1
    # each version of torch says itself which setuptools it takes: 2.11 none from 82 on
    grep -v -e '^torch==' -e '^setuptools==' constraints.txt >"$venv/constraints.txt"
    "$venv/bin/python" -m pip install --quiet --constraint "$venv/constraints.txt" "$wanted" --editable ".[dev]" &&
        "$venv/bin/python" -c 'import torch; print("torch", torch.__version__)' &&
        HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -q -n "${WORKERS:-2}" ||
        failed="$failed $version"
done
[ -z "$failed" ] || { echo "torch versions not passed:$failed"; exit 1; }
