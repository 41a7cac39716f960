#!/bin/sh
# Usage: run.sh TEST_BINARY FOLDER. Lets the test binary write HTML reports to
# FOLDER and opens them in Chromium. Exit 77: something that is needed is not
# installed; with CI=true that is a failure. Set-up, once: npm ci here.
set -eu
tests=$1
pages=$2
here=$(cd "$(dirname "$0")" && pwd)
chromium=${CHROMIUM:-/usr/bin/chromium}

skip() {
  [ "${CI:-}" != true ] || { echo "failed: $1"; exit 1; }
  echo "skipped: $1"
  exit 77
}
[ -x "$chromium" ] || skip "no $chromium (set CHROMIUM)"
command -v node > /dev/null || skip "no node"
[ -d "$here/node_modules/playwright-core" ] ||
  skip "no playwright-core (run 'npm ci' in tests/browser)"

rm -rf "$pages"
mkdir -p "$pages"
PIPEWRIGHT_BROWSER_PAGES=$pages "$tests" "[.browser-pages]"
# Without uPlot the page shows its static figure, and no chart would be checked.
if [ "${CI:-}" = true ] && ! grep -q 'id="uplot"' "$pages/plot.html"; then
  echo "failed: $pages/plot.html has no uPlot; the configuration says why" \
    "(Charts of pages)"
  exit 1
fi
CHROMIUM=$chromium exec node "$here/check_report.js" "$pages"
