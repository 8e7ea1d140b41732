#!/usr/bin/env bash
# Checks the types of scripts, which are written in JSDoc, by TypeScript from the npm registry: those of the page, which are
# modules, and those of the site's figures, which share their globals.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=7.0.2
if ! command -v npm >/dev/null; then
    echo "no npm here: the types of the scripts are not checked" >&2
    exit 0
fi
if [ ! -x build/tsc/node_modules/.bin/tsc ]; then
    npm install --silent --no-audit --no-fund --no-save --prefix build/tsc "typescript@$VERSION" >/dev/null
fi
check() {
    build/tsc/node_modules/.bin/tsc --noEmit --allowJs --checkJs --strict --noImplicitReturns --noFallthroughCasesInSwitch \
        --target es2022 --module es2022 --moduleResolution bundler --lib es2022,dom,dom.iterable --types "" "$@"
}

check src/moreaugrad/app/static/*.js
check docs/_static/figures/{draw,eta,rho,sigma,statistic}.js
