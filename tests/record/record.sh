#!/bin/bash
# What users get from a build, byte for byte, to see what a change has changed:
#
#   tests/record/record.sh PIPEWRIGHT BEFORE      # a folder that it writes
#   tests/record/record.sh PIPEWRIGHT AFTER
#   diff -r BEFORE AFTER
#
# Every command of README.md and docs/ with the files that it writes; every
# schedule as each format and on each engine, with its trace; every system and
# topology; every list, help, and the reference of fields. Lines with a version
# are left out. Pictures and pages count by their pixels if Chromium is there
# (tests/browser, after npm ci); AFTER has a checksum in their place. All is run
# twice: what differs then (times that were measured) is named in `unstable` and
# not recorded. Takes some ten minutes.
set -euo pipefail

program=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export program

# record NAME COMMAND...: both streams and the exit code.
record() {
  local out=$to/$1 code=0
  shift
  mkdir -p "$(dirname "$out")"
  "$@" > "$out" 2> "$out.err" < /dev/null || code=$?
  sed -i '/"version"/d; /^pipewright [0-9.]*$/d' "$out"
  [[ -s $out.err ]] || rm "$out.err"
  ((code == 0)) || echo "$code" > "$out.code"
}

# files_of PAGE FOLDER: blocks below "<!-- file: NAME -->".
files_of() {
  awk -v to="$2" '
    /^<!-- file: / { name = $3; next }
    /^```/ { if (inside) name = ""; inside = !inside; next }
    inside && name { print > (to "/" name) }' "$1"
}

# commands_of PAGE: one a line, as tests/cli/readme_test.cc takes them.
commands_of() {
  awk '
    /^<!-- not run/ { left = 1; next }
    /^```/ && inside { inside = 0; next }
    /^```/ { inside = 1; runs = !left && ($0 == "```" || $0 == "```sh"); left = 0; next }
    inside && runs && !/^#/ && NF {
      if (sub(/\\$/, "")) { text = text $0; next }
      print text $0
      text = ""
    }
    !inside && NF { left = 0 }' "$1"
}

pages() {
  local page name number command place
  for page in "$root"/README.md "$root"/docs/{,dev/}*.md; do
    name=${page#"$root"/}
    name=${name%.md}
    number=0
    place=$work/page
    rm -rf "$place"
    mkdir "$place"
    files_of "$page" "$place"
    while IFS= read -r command; do
      number=$((number + 1))
      record "pages/$name/$(printf %03d "$number")" env -C "$place" bash -c \
        "pipewright() { \"\$program\" \"\$@\"; }; $command"
    done < <(commands_of "$page")
    if [[ -n $(ls -A "$place") ]]; then
      cp -r "$place" "$to/pages/$name/files"
    fi
  done
}

names() { "$program" list "$1" --json | sed -n 's/^      "name": "\(.*\)",*$/\1/p'; }

schedules() {
  local name format engine
  for name in $(names schedules); do
    for format in text json csv svg; do
      record "schedules/$name/$format" "$program" schedule "$name" --pp 4 \
        --microbatches 16 --format "$format"
    done
    for engine in fast simgrid; do
      record "schedules/$name/$engine" "$program" simulate --schedule "$name" \
        --pp 4 --microbatches 16 --forward 3ms --backward-input 4ms \
        --backward-weight 2ms --p2p 0.1ms --engine "$engine" --json \
        --trace "$to/schedules/$name/$engine.trace"
    done
    record "schedules/$name/estimated" "$program" simulate --schedule "$name" \
      --model llama3-8b --system dgx-h100 --nodes 2 --pp 4 --dp 4 \
      --microbatches 16 --analytic --json
    record "schedules/$name/explained" "$program" explain --schedule "$name" \
      --pp 4 --microbatches 16 --p2p 0.1ms --json
  done
}

systems() {
  local name
  for name in $(names systems); do
    for engine in fluid simgrid; do
      record "systems/$name.$engine" "$program" simulate --schedule 1f1b \
        --model llama3-8b --system "$name" --nodes 8 --pp 4 --tp 4 --dp 4 \
        --microbatches 8 --analytic --engine "$engine" --json
    done
    record "systems/$name.fsdp" "$program" simulate --schedule zb-h1 --model \
      llama3-8b --system "$name" --nodes 8 --pp 4 --tp 4 --dp 4 --data-parallel fsdp \
      --microbatches 8 --analytic --json
  done
  for name in $(names topologies); do
    record "topologies/$name" "$program" simulate --schedule 1f1b --model \
      llama3-8b --system dgx-h100 --set system.shape="$name" --nodes 8 --pp 4 \
      --tp 8 --dp 2 --microbatches 8 --analytic --json
  done
  record topologies/pictures "$program" list topologies --svg "$to/topologies"
}

lists() {
  local what
  for what in schedules topologies systems models devices profiles fields; do
    record "lists/$what" "$program" list "$what" --json
    record "lists/$what.text" "$program" list "$what"
  done
  record lists/fields.md "$program" list fields --markdown
  for what in simulate schedule check list compare reproduce explain diagnose \
    plot init calibrate execute sweep plan; do
    record "help/$what" "$program" "$what" --help all
  done
  for what in bash zsh fish; do record "help/$what" "$program" completion "$what"; done
  record help/man "$program" man
}

for to in "$work/once" "$work/twice"; do
  mkdir "$to"
  pages
  schedules
  systems
  lists
  # Folders differ from run to run.
  (grep -rlF "$work" "$to" || true) | xargs -r sed -i "s|$work/[a-z]*|FOLDER|g"
done
if [[ -d $root/tests/browser/node_modules && -x ${CHROMIUM:-/usr/bin/chromium} ]]; then
  node "$root/tests/browser/pixels.js" "$work/once" "$work/twice"
fi
(diff -rq "$work/once" "$work/twice" || true) |
  sed -n "s|^Files $work/once/\(.*\) and .* differ$|\1|p; \
s|^Only in $work/[a-z]*/*\(.*\): |\1/|p" | sort > "$work/unstable"
while IFS= read -r name; do rm -rf "$work/once/$name"; done < "$work/unstable"
mv "$work/unstable" "$work/once/unstable"
rm -rf "$folder"
mv "$work/once" "$folder"
printf '%d files, %d were unstable (%s/unstable)\n' \
  "$(find "$folder" -type f | wc -l)" "$(wc -l < "$folder/unstable")" "$2"
