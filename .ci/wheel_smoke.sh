#!/usr/bin/env bash
# Builds the package as it would be published, installs it where there is nothing else, and uses it from elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
uv=$root/.venv/bin/uv
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$uv" build --quiet --python .venv/bin/python --out-dir "$place/dist"   # the wheel is made from the sdist
.venv/bin/twine check --strict "$place"/dist/*
.venv/bin/python tools/check_distribution.py "$place/dist"
"$uv" venv --quiet --python .venv/bin/python "$place/venv"
"$uv" pip install --quiet --python "$place/venv/bin/python" --constraint constraints.txt "$place"/dist/*.whl

cd "$place"
export PATH="$place/venv/bin:$PATH"
unset PYTHONPATH VIRTUAL_ENV

python - <<'PYTHON'
from importlib.resources import files

import moreaugrad

here = files("moreaugrad")
assert "site-packages" in str(here), f"imported {here}, not the installed wheel"
assert (here / "py.typed").is_file(), "py.typed is missing from the wheel"

missing = [name for name in moreaugrad.__all__ if not hasattr(moreaugrad, name)]
assert not missing, f"public names that do not resolve: {missing}"

model = moreaugrad.load_model("efficientnet_lite0")
assert len(model.labels) == 1000, f"expected the 1000 labels of ImageNet, got {len(model.labels)}"
print(f"moreaugrad {moreaugrad.__version__}: {len(moreaugrad.__all__)} public names, py.typed and the weights are there")
PYTHON

moreaugrad --version
moreaugrad methods --json | python -c 'import json, sys; found = json.load(sys.stdin); assert found; print(len(found), "methods")'

# as where the package lies in folders that its user may not write, and without a network
mkdir mine
python -B "$root/tests/support/watched.py" mine -m moreaugrad explain "$root/docs/chelsea.jpg" --method gradient --quiet --out mine/maps
test -s mine/maps/chelsea.gradient.png
echo "a map was made without a network and without a write outside its folder"
