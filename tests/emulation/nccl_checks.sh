#!/usr/bin/env bash
# nccl_checks.sh NCCL_CHECKS: every case of nccl_checks.cc, ranks as threads and
# as processes. Those that break NCCL's rules must end with 99 and say what is
# wrong.
set -uo pipefail
checks=$1
rooms=$(mktemp -d) || exit 2
trap 'rm -rf "$rooms"' EXIT
export EMULATION_ROOMS=$rooms
failures=0

threads() { # CASE RANKS
  EMULATION_DEVICES=$2 timeout 120 "$checks" "$1" "$2" 2>&1
}

# The highest exit status of all.
processes() { # CASE RANKS
  local rank status=0 each pids=()
  rm -f "$rooms/id"
  for ((rank = 0; rank < $2; ++rank)); do
    EMULATION_DEVICES=$2 timeout 120 \
      "$checks" "$1" "$2" "$rank" "$rooms/id" 2>&1 &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do
    wait "$rank"
    each=$?
    if [[ $each -gt $status ]]; then status=$each; fi
  done
  return "$status"
}

holds() { # HOW CASE RANKS EXIT TEXT
  local output status
  output=$("$1" "$2" "$3")
  status=$?
  if [[ $status -eq $4 && $output =~ $5 ]]; then
    printf 'ok     %s, %s ranks as %s\n' "$2" "$3" "$1"
    return
  fi
  printf 'FAILED %s, %s ranks as %s: exit %s, not %s with "%s"\n%s\n' \
    "$2" "$3" "$1" "$status" "$4" "$5" "$output"
  failures=$((failures + 1))
}

for how in threads processes; do
  for ranks in 1 2 4; do holds "$how" collectives "$ranks" 0 ''; done
  holds "$how" arguments 2 0 ''
  holds "$how" duplicate 2 0 ''
  holds "$how" abort 3 0 ''
  holds "$how" counts 2 99 'receive of 8 values .* meets send of 4 values'
  holds "$how" types 2 99 'of type 7 .* meets .* of type 2 |of type 2 .* meets .* of type 7 '
  holds "$how" order 2 99 'call number 0, .*all_(reduce|gather).* meets all_'
  holds "$how" fill 2 99 'memory of device 0 is filled on a stream of device 1'
  EMULATION_PATIENCE=1 holds "$how" deadlock 3 99 \
    'member 1 of 3 .*waits for ever, in send of 4 .* to 0, for 0; member 0 waits in send of 4 .* to 1; member 2 waits for nobody'
done
if compgen -G "$rooms/emulated-*" > /dev/null; then
  printf 'FAILED there is something left: %s\n' "$(ls "$rooms")"
  failures=$((failures + 1))
fi
exit $((failures > 0))
