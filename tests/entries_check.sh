#!/usr/bin/env bash
# Usage: entries_check.sh TEST_BINARY CTEST BUILD_FOLDER [TAG]. Fails unless the
# entries of ctest reach every test case of the binary but hidden ones and those
# with TAG, and names the others. It asks ctest what it would run.
set -euo pipefail
tests=$1
ctest=$2
folder=$3
left_out=${4:-}

# Catch2 exits with the number of what it lists.
list() { "$tests" --filenames-as-tags --list-test-names-only "$@" || true; }

# The last word of each command: a test specification in quotes.
mapfile -t specs < <("$ctest" --test-dir "$folder" -N -V |
  sed -nE 's/^[0-9]+: Test command: [^ ]*pipewright_tests"? .*"(.*)"$/\1/p')
[[ ${#specs[@]} -gt 0 ]] || {
  echo "ctest has no entry that runs $tests"
  exit 1
}
wanted=$(list "~[.]${left_out:+~$left_out}" | LC_ALL=C sort -u)
reached=$(for ((first = 0; first < ${#specs[@]}; first += 200)); do
  list "$(
    IFS=,
    echo "${specs[*]:first:200}"
  )"
done | LC_ALL=C sort -u)
missing=$(LC_ALL=C comm -3 <(echo "$wanted") <(echo "$reached"))
echo "${#specs[@]} entries reach $(wc -l <<<"$reached") cases of" \
  "$(wc -l <<<"$wanted")"
[[ -z $missing ]] || {
  printf 'on one side only:\n%s\n' "$missing"
  exit 1
}
