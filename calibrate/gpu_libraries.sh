# Where CUDA, cuBLAS, cuDNN and NCCL are; gpu_run.sh reads it. Leaves `cuda`, the
# toolkit; holder and header, which find a file; and LD_LIBRARY_PATH. `say`
# prints (run_steps.sh).

# Folders that may have CUDA's libraries: the toolkit, then what Python
# packages bring (site-packages/nvidia/*/lib).
cuda=${CUDA_HOME:-${CUDA_PATH:-}}
if [[ -z $cuda ]]; then
  if nvcc=$(command -v nvcc); then
    cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  else
    cuda=/usr/local/cuda
  fi
fi
site=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' \
  2> /dev/null)
folders=()
for folder in "$cuda/lib64" "$cuda/lib" ${site:+"$site"/*/lib}; do
  [[ -d $folder ]] && folders+=("$folder")
done

# Prints the folder that has library $1, if one has.
holder() {
  local folder
  for folder in "${folders[@]}"; do
    if compgen -G "$folder/$1" > /dev/null; then
      printf '%s' "$folder"
      return 0
    fi
  done
  ldconfig -p 2> /dev/null | awk -v name="$1" '
    $1 == name { print $NF; found = 1; exit } END { exit !found }' |
    xargs -r dirname
}

# Prints the folder with header $1, if there is one.
header() {
  local folder
  for folder in "$cuda/include" ${site:+"$site"/*/include} /usr/include; do
    if [[ -f $folder/$1 ]]; then
      printf '%s' "$folder"
      return 0
    fi
  done
  return 1
}

# Libraries of one version of CUDA only: the toolkit's that builds, else the
# newest that the driver takes. A folder of another version in the path would
# be found first by whoever looks for a name that both have.
major=$("$cuda/bin/nvcc" --version 2> /dev/null |
  sed -n 's/.*release \([0-9]*\)\..*/\1/p')
if [[ -z $major ]]; then
  driver=$(nvidia-smi 2> /dev/null |
    sed -n 's/.*CUDA Version: \([0-9]*\)\..*/\1/p')
  for major in $(seq "${driver:-13}" -1 12) ''; do
    if [[ -z $major || -n $(holder "libcublasLt.so.$major") ]]; then break; fi
  done
fi
# Does folder $1 hold cuBLAS of another version and not of this one?
of_another_version() {
  compgen -G "$1/libcublasLt.so.*" > /dev/null &&
    ! compgen -G "$1/libcublasLt.so.${major:-*}" > /dev/null
}
path=''
for library in "libcublasLt.so.${major:-12}" libcudnn.so.9 libnccl.so.2; do
  folder=$(holder "$library")
  [[ -n $folder ]] || continue
  say "$library: $folder"
  if of_another_version "$folder"; then
    say "  not taken: it has cuBLAS of another version of CUDA than $major"
    continue
  fi
  case ":$path:" in *":$folder:"*) ;; *) path=${path:+$path:}$folder ;; esac
done
[[ $path == *[!:]* ]] || say "no CUDA library found under $cuda or in Python"
for library in libcudnn.so.9:'attention uses the own kernels' \
  libnccl.so.2:'the NCCL transport is left out'; do
  [[ -n $(holder "${library%%:*}") ]] ||
    say "${library%%:*} is missing: ${library#*:}"
done
export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
