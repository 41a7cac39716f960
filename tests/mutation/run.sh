#!/bin/bash
# Puts one fault at a time into a copy of the sources, builds it, runs the
# nearest tests, and writes down which of them has noticed: table.md. A mutant
# is a file in mutants/:
#
#   what: what is wrong with it, in a sentence
#   file: sim/memory/activations.cc
#   tests: memory: a split backward leaves what W needs
#   builds: pipewright                            (where tests run binaries)
#   survives: why no test is meant to notice it   (only where that is so)
#   old:
#   text that stands in the file exactly once
#   new:
#   text that takes its place
#
# `tests` is a test specification of Catch2. A comma in a name is \, there.
#
# It works on a copy in build/mutation, links once a mutant and takes an hour or
# two for all, so CI does not run it; the default tests have mutation.check
# (--check). Whoever changes a line that is an old text changes the mutant, runs
# it and commits table.md. A mutant that survives needs a test that notices the
# change in behaviour, not in the text; or a line `survives:` with the reason.
set -u
# Locale of bytes, for this shell alone: ccache goes by the locale that it sees.
LC_ALL=C

usage() {
  cat <<TEXT
usage: tests/mutation/run.sh [options] [MUTANT|FILE...]

  MUTANT      only this one, by its name without .mutant
  FILE        only those of this source file

  --check     only whether every mutant still fits: its old text stands in its
              file exactly once. With --binary also whether its tests exist.
  --binary B  pipewright_tests
  --list      names, files and what they are
  --table     only writes table.md, where a run was interrupted
  --resume    leaves out what was killed with the same mutant and file
  --preset P  of CMake; default: release
  --tree D    where the copy is; default: build/mutation/tree
  -j N        compilers at a time; default: 1
  --nice N    of builds and tests; default: 15
TEXT
}

fail() {
  echo "run.sh: $*" >&2
  exit 2
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
root=$(cd "$here/../.." && pwd) || exit 2
mode=run
binary=
resume=
preset=release
tree=$root/build/mutation/tree
jobs=1
niceness=15
wanted=()
while [ $# -gt 0 ]; do
  case $1 in
    --check | --list | --table) mode=${1#--} ;;
    --resume) resume=yes ;;
    --binary | --preset | --tree | -j | --nice)
      [ $# -gt 1 ] || fail "$1 needs a value"
      case $1 in
        --binary) binary=$2 ;;
        --preset) preset=$2 ;;
        --tree) tree=$2 ;;
        -j) jobs=$2 ;;
        --nice) niceness=$2 ;;
      esac
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) fail "$1 is unknown; see --help" ;;
    *) wanted+=("${1%.mutant}") ;;
  esac
  shift
done
binaries=$tree/build/$preset
results=$(dirname "$tree")/results
table=$here/table.md

# All of a file, with its last newlines, in $text.
text=
read_text() {
  text=$(cat "$1" && echo x) || return 1
  text=${text%x}
}

# A mutant in $what, $file, $tests, $builds, $survives, $old and $new.
read_mutant() {
  what='' file='' tests='' builds='' survives=''
  read_text "$here/mutants/$1.mutant" || fail "no mutant $1; see --list"
  local head=${text%%$'\nold:\n'*} body line
  [ "$head" != "$text" ] || fail "$1: no line old:"
  body=${text:${#head}+6}
  old=${body%%$'\nnew:\n'*}
  [ "$old" != "$body" ] || fail "$1: no line new:"
  new=${body:${#old}+6}
  new=${new%$'\n'}
  while IFS= read -r line; do
    case $line in
      what:\ *) what=${line#what: } ;;
      file:\ *) file=${line#file: } ;;
      tests:\ *) tests=${line#tests: } ;;
      builds:\ *) builds=${line#builds: } ;;
      survives:\ *) survives=${line#survives: } ;;
      *)
        fail "$1: '$line' is no field; allowed: what, file, tests, builds," \
          "survives"
        ;;
    esac
  done <<<"$head"
  if [ -z "$what" ] || [ -z "$file" ] || [ -z "$tests" ]; then
    fail "$1: what, file and tests have to be there"
  fi
}

# Puts the file with the fault in it into $text.
apply() {
  read_text "$root/$file" || fail "$1: no file $file"
  local before=${text%%"$old"*} after
  [ "$before" != "$text" ] || fail "$1: its old text is not in $file"
  after=${text:${#before}+${#old}}
  [ "${after%%"$old"*}" = "$after" ] ||
    fail "$1: its old text is in $file more than once"
  [ "$old" != "$new" ] || fail "$1: old and new text are the same"
  text=$before$new$after
}

all=()
for path in "$here"/mutants/*.mutant; do
  name=${path##*/}
  all+=("${name%.mutant}")
done
chosen=()
for name in "${all[@]}"; do
  if [ ${#wanted[@]} -gt 0 ]; then
    read_mutant "$name"
    for each in "${wanted[@]}"; do
      if [ "$each" = "$name" ] || [ "$each" = "$file" ]; then
        chosen+=("$name")
        break
      fi
    done
  else
    chosen+=("$name")
  fi
done
[ ${#chosen[@]} -gt 0 ] || fail "no such mutant or file: ${wanted[*]}"

# All of them fit before any is built.
declare -A specs=()
for name in "${chosen[@]}"; do
  read_mutant "$name"
  [ "$mode" != list ] || printf '%-44s %s\n    %s\n' "$name" "$file" "$what"
  apply "$name"
  specs[$tests]=$name
done
[ "$mode" != list ] || exit 0
if [ -n "$binary" ]; then
  for spec in "${!specs[@]}"; do
    # It ends with the number of tests.
    [ -n "$("$binary" --list-test-names-only "$spec")" ] ||
      fail "${specs[$spec]}: no test is named '$spec'"
  done
fi
if [ "$mode" = check ]; then
  echo "${#chosen[@]} mutants fit"
  exit 0
fi

mkdir -p "$tree" "$results" || exit 2
cd "$root" || exit 2
# The copy follows the working tree, whatever a run before has left in it.
copy_sources() {
  copied=$(dirname "$tree")/copied
  git ls-files -co --exclude-standard >"$copied.now" || exit 2
  [ ! -e "$copied" ] || grep -vxFf "$copied.now" "$copied" |
    while IFS= read -r path; do rm -f "$tree/$path"; done
  while IFS= read -r path; do
    [ -e "$path" ] || continue
    cmp -s "$path" "$tree/$path" && continue
    mkdir -p "$tree/$(dirname "$path")"
    cp "$path" "$tree/$path" || exit 2
  done <"$copied.now"
  mv "$copied.now" "$copied"
}

# Links are most of the work: a faster linker, where there is one.
linker=
for each in gold lld; do
  ! command -v ld.$each >/dev/null || linker=-fuse-ld=$each
done
log=$(dirname "$tree")/log
# pipewright_tests and the targets named.
build() {
  (cd "$tree" && nice -n "$niceness" cmake --build --preset "$preset" \
    --parallel "$jobs" --target pipewright_tests "$@") >"$log" 2>&1
}

# Runs the tests of $1 for at most $2 seconds. 0: all pass. 1: one fails, its
# name is in $failed. 2: they do not end, $failed is what ran last.
run_tests() {
  local output
  output=$(dirname "$tree")/output.xml
  (cd "$tree" && nice -n "$niceness" timeout -k 10 "$2" \
    "$binaries/tests/pipewright_tests" --abort -r xml "$1") >"$output" 2>/dev/null
  local code=$?
  failed=$(awk '/<TestCase name="/ {
      name = $0
      sub(/.*<TestCase name="/, "", name)
      sub(/" (tags|filename)=".*/, "", name)
    }
    /<OverallResult success="false"/ { found = name; exit }
    END { print found == "" ? name : found }' "$output" |
    sed 's/&quot;/"/g; s/&lt;/</g; s/&gt;/>/g; s/&apos;/'"'"'/g; s/&amp;/\&/g')
  case $code in
    0) return 0 ;;
    124 | 137) return 2 ;;
  esac
  return 1
}

# Results count for the same mutant, file and tests of the same names.
key_of() { cat "$here/mutants/$1.mutant" "$root/$file" | sha256sum; }
commit=$(git rev-parse --short HEAD)
[ -z "$(git status --porcelain -uno)" ] || commit=$commit+
todo=()
specs=()
needed=
[ "$mode" != table ] || chosen=()
for name in "${chosen[@]}"; do
  read_mutant "$name"
  [ -n "$resume" ] && [ -e "$results/$name" ] &&
    [ "$(head -n 2 "$results/$name")" = "$(key_of "$name")"$'\nkilled' ] &&
    continue
  todo+=("$name")
  specs[$tests]=$name
  needed="$needed $builds"
done

if [ ${#todo[@]} -gt 0 ]; then
  copy_sources
  # shellcheck disable=SC2086 # words
  if ! (cd "$tree" && cmake --preset "$preset" -DPIPEWRIGHT_CUDA=OFF \
    -DPIPEWRIGHT_BENCHMARKS=OFF -DPIPEWRIGHT_TESTS_ALONE=ON \
    -DCMAKE_EXE_LINKER_FLAGS="$linker") >"$log" 2>&1 || ! build $needed; then
    tail -n 40 "$log" >&2
    fail "the sources do not build"
  fi
  # What fails anyway kills nothing.
  run_tests "$(
    IFS=,
    echo "${!specs[*]}"
  )" 7200 || fail "fails without any mutant, or does not end: $failed"
fi
count=0
broken=0
for name in "${todo[@]}"; do
  count=$((count + 1))
  read_mutant "$name"
  key=$(key_of "$name")
  apply "$name"
  printf '%s' "$text" >"$tree/$file"
  # shellcheck disable=SC2086 # words
  if ! build $builds; then
    cp "$root/$file" "$tree/$file"
    grep -m 5 'error:' "$log" >&2
    echo "run.sh: $name does not build" >&2
    broken=$((broken + 1))
    continue
  fi
  run_tests "$tests" 900
  case $? in
    0) verdict=survived failed='' ;;
    1) verdict=killed ;;
    *) verdict=endless ;;
  esac
  cp "$root/$file" "$tree/$file"
  printf '%s\n%s\n%s\n%s\n' "$key" "$verdict" "$failed" \
    "$(date -u +%F) | $commit" >"$results/$name"
  echo "$count of ${#todo[@]}: $name: $verdict${failed:+ by $failed}"
done

# Rows of what has run now or before here; of the rest those that are there.
declare -A rows=()
if [ -e "$table" ]; then
  while IFS= read -r line; do
    case $line in
      *'| not run |'*) ;;
      '| `'*)
        name=${line#'| `'}
        rows[${name%%\`*}]=$line
        ;;
    esac
  done <"$table"
fi
killed=0
survivors=0
endless=0
missing=0
unexpected=0
body=
for name in "${all[@]}"; do
  read_mutant "$name"
  if [ -e "$results/$name" ] &&
    [ "$(head -n 1 "$results/$name")" = "$(key_of "$name")" ]; then
    { read -r _ && read -r verdict && read -r failed && read -r when; } \
      <"$results/$name"
    case $verdict in
      killed) outcome=$failed ;;
      endless) outcome="**does not end**: $failed" ;;
      *) outcome="**survived**${survives:+: $survives}" ;;
    esac
    rows[$name]="| \`$name\` | $what | \`$file\` | ${outcome//|/\\|} | $when |"
  fi
  row=${rows[$name]:-}
  case $row in
    '')
      missing=$((missing + 1))
      row="| \`$name\` | $what | \`$file\` | not run | | |"
      ;;
    *'**survived**'*)
      survivors=$((survivors + 1))
      [ -n "$survives" ] || unexpected=$((unexpected + 1))
      ;;
    *'**does not end**'*)
      endless=$((endless + 1))
      ;;
    *)
      killed=$((killed + 1))
      [ -z "$survives" ] || {
        echo "run.sh: $name says that it survives, and does not" >&2
        unexpected=$((unexpected + 1))
      }
      ;;
  esac
  body=$body$row$'\n'
done
{
  echo "# Mutants"
  echo
  echo "Written by \`run.sh\`, which see. ${#all[@]} mutants: $killed killed," \
    "$survivors survived, $endless did not end, $missing not run."
  echo
  echo "| Mutant | What is wrong | File | First test that noticed | Date | Commit |"
  echo "|---|---|---|---|---|---|"
  printf '%s' "$body"
} >"$table"
echo "$killed killed, $survivors survived, $endless did not end, $missing not" \
  "run: $table"
[ $((unexpected + broken)) = 0 ] || exit 1
