#!/usr/bin/env bash
# Fetches the Debian packages that gpu_run.sh --debs builds against, for a
# machine without network. Run it on Debian 12, as any user. Without SimGrid:
# its libraries alone are larger than all of these.
set -euo pipefail

usage() {
  cat << 'END'
Usage: calibrate/gpu_debs.sh DIR

Downloads into DIR (about 8 MiB; fails above 60 MiB) and prints what is there.
END
}

mapfile -t PACKAGES < <("$(dirname "${BASH_SOURCE[0]}")/../setup.sh" packages gpu)
LIMIT_MIB=60

if [[ $# -ne 1 || $1 == -* ]]; then
  usage >&2
  exit 2
fi
command -v apt-get > /dev/null || {
  echo "gpu_debs.sh: there is no apt-get; run this on Debian 12" >&2
  exit 1
}
mkdir -p "$1"
cd "$1"
# apt's own user may not write here; that is only a warning.
apt-get -q -o Acquire::Retries=5 -o APT::Sandbox::User=root \
  download "${PACKAGES[@]}"
for package in "${PACKAGES[@]}"; do
  compgen -G "${package}_*.deb" > /dev/null || {
    echo "gpu_debs.sh: $package was not fetched" >&2
    exit 1
  }
done
total_kib=$(du -ck ./*.deb | tail -1 | cut -f 1)
du -k ./*.deb
printf 'total %d KiB\n' "$total_kib"
if ((total_kib > LIMIT_MIB * 1024)); then
  printf 'gpu_debs.sh: more than %d MiB\n' "$LIMIT_MIB" >&2
  exit 1
fi
