#!/usr/bin/env bash
# Runs a pipeline schedule CSV with real PyTorch, one process a rank, and
# compares loss and gradients with plain autograd.
#
#   torch_csv_check.sh [options] SCHEDULE.csv
#     --cache DIR     where the PyTorch root lives (default: $PIPEWRIGHT_TORCH_CACHE,
#                     else ~/.cache/pipewright-torch); built on first use
#     --suite NAME    Debian suite that PyTorch comes from (default: sid)
#     --format F      auto | compute_only | compute_comms (default: auto)
#     --timeout S     seconds before a run counts as hung (default: 120)
#
# Standard output: one line, PASS or FAIL, with the largest gradient error.
# Exit code: 0 pass; 1 fail (wrong result, refused by PyTorch, hung);
#            2 bad usage, or the root could not be built.
#
# The root is unpacked from the Debian packages of python3-torch and what they
# need (about 250 MB to load, 1.2 GB on disk, half a minute). Nothing is
# installed on the machine itself. The mirror is the one that apt is configured
# with.
# Needs: apt, dpkg-deb, chroot, unshare; root or unprivileged user namespaces.
set -euo pipefail

die() { echo "torch_csv_check: $*" >&2; exit 2; }
say() { echo "torch_csv_check: $*" >&2; }

cache=${PIPEWRIGHT_TORCH_CACHE:-${XDG_CACHE_HOME:-${HOME:-.}/.cache}/pipewright-torch}
suite=sid
format=auto
limit=120
file=
while (($#)); do
  case $1 in
    --cache|--suite|--format|--timeout)
      (($# > 1)) || die "$1 needs a value"
      case $1 in
        --cache) cache=$2 ;;
        --suite) suite=$2 ;;
        --format) format=$2 ;;
        --timeout) limit=$2 ;;
      esac
      shift 2 ;;
    -h|--help) sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    -*) die "unknown option $1" ;;
    *) [[ -z $file ]] || die "one schedule file only"; file=$1; shift ;;
  esac
done
[[ -n $file ]] || die "usage: torch_csv_check.sh [options] SCHEDULE.csv"
[[ -r $file ]] || die "cannot read $file"
case $format in auto|compute_only|compute_comms) ;; *) die "unknown format $format" ;; esac
[[ $suite =~ ^[a-z][a-z0-9-]*$ ]] || die "unknown suite $suite"
[[ $limit =~ ^[0-9]+$ ]] || die "--timeout takes whole seconds"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ -r $here/torch_csv_check.py ]] || { say "no torch_csv_check.py beside it"; exit 1; }
mkdir -p "$cache" || die "cannot create $cache"
cache=$(cd "$cache" && pwd)
root=$cache/$suite

# Runs a command inside the root. With mount rights /dev and /proc are bound in
# a private mount namespace, so nothing is left mounted.
if ((EUID == 0)); then space=(unshare --mount); else space=(unshare --user --map-root-user --mount); fi
if ! "${space[@]}" true 2>/dev/null; then
  ((EUID == 0)) || die "needs root or unprivileged user namespaces"
  space=()
fi
enter() {
  local clean=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/job TMPDIR=/job LC_ALL=C.UTF-8)
  if ((${#space[@]})); then
    "${clean[@]}" "${space[@]}" bash -c '
      root=$1; shift
      mount --rbind /dev "$root/dev" && mount --rbind /proc "$root/proc" || exit 2
      exec chroot "$root" "$@"' enter "$root" "$@"
  else
    [[ -e $root/dev/null ]] || mknod -m 666 "$root/dev/null" c 1 3
    [[ -e $root/dev/urandom ]] || mknod -m 444 "$root/dev/urandom" c 1 9
    "${clean[@]}" chroot "$root" "$@"
  fi
}

# The base address of the Debian archive, as apt knows it.
mirror() {
  local all
  all=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages') || return 1
  awk '$1 == "Debian" { print $2; found = 1; exit }
       NF && $NF ~ /\/debian\/?$/ && !first { first = $NF }
       END { if (!found && first) print first }' <<<"$all"
}

build() {
  local tool uri key work=$root.apt
  for tool in apt-get dpkg-deb chroot unshare; do
    command -v "$tool" >/dev/null || die "$tool is missing"
  done
  key=/usr/share/keyrings/debian-archive-keyring.gpg
  [[ -r $key ]] || die "the Debian archive keyring is missing"
  uri=$(mirror) && [[ -n $uri ]] || die "apt has no Debian archive configured"

  say "building a root with PyTorch from Debian $suite in $root"
  rm -rf "$root" "$work"
  mkdir -p "$work"/{state/lists/partial,cache/archives/partial}
  : >"$work/status"
  echo "deb [signed-by=$key] $uri $suite main" >"$work/sources.list"
  cat >"$work/apt.conf" <<CONF
Dir::State "$work/state";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Architecture "$(dpkg --print-architecture)";
APT::Architectures { "$(dpkg --print-architecture)"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
CONF
  export APT_CONFIG=$work/apt.conf
  apt-get -qq update >&2 || die "apt-get update failed"
  # An empty package status: apt resolves the whole set from nothing.
  apt-get -qq -y --download-only install python3-torch >&2 \
    || die "the packages of python3-torch could not be loaded"
  unset APT_CONFIG

  # Merged /usr first, then unpack. No package script is run.
  mkdir -p "$root"/{usr/bin,usr/sbin,usr/lib,usr/lib64,dev,proc,job}
  local d
  for d in bin sbin lib lib64; do ln -s "usr/$d" "$root/$d"; done
  local deb
  for deb in "$work"/cache/archives/*.deb; do
    dpkg-deb --extract "$deb" "$root" || die "cannot unpack ${deb##*/}"
  done
  # What the alternatives system would link.
  local dir so
  for dir in "$root"/usr/lib/*/blas "$root"/usr/lib/*/lapack; do
    [[ -d $dir ]] || continue
    for so in "$dir"/lib*.so.3; do
      [[ -e $so ]] && ln -sf "${dir##*/}/${so##*/}" "${dir%/*}/${so##*/}"
    done
  done

  local version
  version=$(enter /usr/bin/python3 -W ignore -c 'import torch; print(torch.__version__)' \
    2>"$root/import.log") \
    || { tail -n 5 "$root/import.log" >&2; die "PyTorch does not start in the root"; }
  rm -rf "$work" "$root/import.log"
  echo "$version" >"$root/.ready"
  say "PyTorch $version is ready"
}

exec 9>"$cache/.lock"
flock 9
[[ -e $root/.ready ]] || build
flock -u 9

job=$(mktemp -d "$root/job/XXXXXXXX") || die "cannot write in $root"
trap 'rm -rf "$job"' EXIT
cp "$file" "$job/schedule.csv"
cp "$here/torch_csv_check.py" "$job/run.py"
inside=/job/${job##*/}
code=0
enter /usr/bin/python3 -W ignore "$inside/run.py" --name "${file##*/}" --format "$format" \
  --timeout "$limit" "$inside/schedule.csv" 9>&- || code=$?
case $code in 0|1|2) exit "$code" ;; *) exit 1 ;; esac
