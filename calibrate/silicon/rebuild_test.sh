#!/bin/sh
# Rebuilds the tables of this folder from their source and compares them byte
# for byte, with and without the times of whole steps in reach. The source is
# not part of this repository: PIPEWRIGHT_SILICON_SOURCE names it, and without
# it the test is skipped (77).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${PIPEWRIGHT_SILICON_SOURCE:-}" ]; then
  echo "skipped: PIPEWRIGHT_SILICON_SOURCE is not set"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The source without whole steps: what is not there cannot be opened.
mkdir "$work/source"
for folder in silicon sdpa norms; do
  ln -s "$PIPEWRIGHT_SILICON_SOURCE/$folder" "$work/source/$folder"
done
python3 -B "$here/distil.py" --source "$work/source" --output "$work/tables"
failed=0
count=0
for file in "$here"/*.csv.gz "$work"/tables/*.csv.gz; do
  name=$(basename "$file")
  count=$((count + 1))
  if ! cmp "$here/$name" "$work/tables/$name"; then failed=1; fi
done
size=$(cat "$here"/*.csv.gz | wc -c)
echo "$count comparisons, $size bytes"
if [ "$size" -gt 2000000 ]; then
  echo "the tables have more than 2 MB"
  failed=1
fi
exit $failed
