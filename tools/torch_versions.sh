#!/bin/sh
# Run all tests on versions of torch, each in an environment of its own: tools/torch_versions.sh 2.11 2.13 newest
# Only CPU builds are taken: set PIP_EXTRA_INDEX_URL to an index that has them.
set -u
failed=""
for version in "$@"; do
    venv=".venv-torch-$version"
    case $version in newest) wanted=torch ;; *) wanted="torch==$version.*" ;; esac
    [ -x "$venv/bin/python" ] || tools/make_venv.sh "$venv" || exit 1
    build=$("$venv/bin/python" -m pip install --dry-run --no-deps "$wanted" 2>/dev/null | sed -n 's/^Would install torch-//p')
    case ${build:-none} in
    *+cpu | *.dev*) ;;
    *)
        echo "torch $version: not run, the package index has no CPU build (it has ${build:-none})"
        failed="$failed $version"
        continue
        ;;
    esac
    grep -v '^torch==' constraints.txt >"$venv/constraints.txt"
    "$venv/bin/python" -m pip install --quiet --constraint "$venv/constraints.txt" "torch==$build" --editable ".[dev]" &&
        HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -q -n "${WORKERS:-2}" ||
        failed="$failed $version"
done
[ -z "$failed" ] || { echo "torch versions not passed:$failed"; exit 1; }
