#!/bin/sh
# Usage: run.sh PIPEWRIGHT FOLDER. Writes schedules as PyTorch's CSV to FOLDER,
# both flavours, and lets torch_csv_check.sh run each in real PyTorch and
# compare loss and gradients with plain autograd. Exit 77: PyTorch cannot be
# set up here. The first run loads about 250 MB.
set -eu
pipewright=$1
files=$2
here=$(dirname "$0")
check=$here/torch_csv_check.sh

skip() {
  echo "skipped: $1"
  exit 77
}
rm -rf "$files"
mkdir -p "$files"
# Every schedule that two ranks can run and the file can hold; exports.txt says
# which these are.
for name in $("$pipewright" list schedules | sed -n 's/^\([a-z0-9-]*\)  .*/\1/p'); do
  for flavour in torch-csv torch-csv-comms; do
    "$pipewright" schedule "$name" --pp 2 --microbatches 4 \
      --format "$flavour" -o "$files/$name.$flavour.csv" 2> "$files/reason" ||
      echo "not written: $name $flavour: $(tail -n 1 "$files/reason")"
  done
done

expected=$here/exports.txt
ls "$files" | sed -n 's/\.csv$//p' | LC_ALL=C sort > "$files/written"
if ! diff "$expected" "$files/written"; then
  echo "failed: the files written (>) are not those of $expected (<)"
  exit 1
fi

passed=0
failed=0
for file in "$files"/*.csv; do
  code=0
  # A busy machine takes minutes for what is seconds of work.
  "$check" --timeout 600 "$file" || code=$?
  case $code in
    0) passed=$((passed + 1)) ;;
    1) failed=$((failed + 1)) ;;
    2) skip "PyTorch cannot be set up (see above)" ;;
    *) echo "failed: $check exits $code" && exit 1 ;;
  esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
