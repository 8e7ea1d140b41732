#!/usr/bin/env bash
# Installs what the tests of the page need: Chromium, from Debian's packages. Does nothing where it is there already.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        exit 0
    fi
done
if ! command -v apt-get >/dev/null; then
    echo "no Chromium here, and no apt-get to install it: install Chromium by your system's own means," >&2
    echo "or leave it out: the tests of the page are then skipped" >&2
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "no Chromium here, and only root may install it: ask for  sudo apt-get install chromium fonts-dejavu-core" >&2
    echo "or leave it out: the tests of the page are then skipped" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
