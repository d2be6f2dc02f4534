# What `run` and `nightly` have in common; sourced by them, in the root of the checkout.
# Each works on a machine where nothing is installed but git, make and Python.
export VENV=.venv
export PYTHON=python3.11 # where there is one: the CPU wheel of torch is for it
# Few heaps a process: glibc keeps what is freed in those of threads.
export MALLOC_ARENA_MAX=2
# Hundreds of processes import the same modules: each is compiled once.
unset PYTHONDONTWRITEBYTECODE
make() { command make --no-print-directory "$@"; }

logs=$(mktemp -d)
failed=() missing=() names=() pids=()
end() {
  for pid in "${pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
  rm -rf "$logs"
}
trap end EXIT

# Sets cpu_s to the CPU seconds of this shell and of all that it has waited for.
count_cpu() {
  times >"$logs/times" # a substitution would be a shell of its own
  cpu_s=$(awk -F '[ms ]+' '{ s += 60 * $1 + $2 + 60 * $3 + $4 } END { printf "%d", s }' "$logs/times")
}

# Its seconds and CPU seconds are printed at the end. Background work counts in the section in which it ends.
section=
step() { # NAME
  local seconds=$SECONDS
  count_cpu
  if [[ $section ]]; then
    printf '%-28s %5d s %6d CPU s\n' "$section" $((seconds - began)) $((cpu_s - before)) >>"$logs/sections"
  fi
  section=$1 began=$seconds before=$cpu_s
  [[ -z $section ]] || printf '\n== %s (%ds)\n' "$1" "$seconds"
}

# Its output is shown where it fails. A process group of its own (-m), so that all of it can be ended.
in_background() { # NAME COMMAND...
  local name=$1
  shift
  set -m
  "$@" >"$logs/$name" 2>&1 &
  set +m
  names+=("$name") pids+=($!)
}

# Waits for each of those that are named; shows what it printed where it fails.
await() { # NAME...
  local i
  for i in "${!pids[@]}"; do
    [[ " $* " == *" ${names[i]} "* ]] || continue
    step "${names[i]}"
    if wait "${pids[i]}"; then
      [[ ${names[i]} != audit ]] || cat "$logs/audit" # what is known, or why nothing is
    else
      cat "$logs/${names[i]}" >&2
      missing+=("${names[i]}")
    fi
    unset 'pids[i]'
  done
}

debian_packages() { # PACKAGE=PROGRAM...
  local each packages=()
  for each in "$@"; do
    compgen -G "${each#*=}" >/dev/null || command -v "${each#*=}" >/dev/null || packages+=("${each%%=*}")
  done
  ((${#packages[@]})) || return 0
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "Needs ${packages[*]}, and can install them only as root with apt-get." >&2
    return 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"
}

# pytest rewrites the assertions of each module: once here, and not once in each worker.
test_modules() { "$VENV/bin/python" -m pytest --collect-only --quiet "$@" || true; }

published_data() {
  if [[ -d ../shared/data ]]; then
    CONTEXTCLIFF_REAL_DATA=$(cd ../shared/data && pwd)
    export CONTEXTCLIFF_REAL_DATA
  fi
}

end_where_something_is_missing() {
  ((${#missing[@]} == 0)) || { printf 'FAILED: %s\n' "${missing[@]}" >&2; exit 1; }
}

verdict() { # the file of pytest's output; the CPU seconds that are meant to suffice
  step ""
  failed+=("${missing[@]}")
  printf '\n== sections\n'
  cat "$logs/sections"
  printf '%-28s %5d s %6d CPU s\n' "all" "$SECONDS" "$cpu_s"
  # No failure: the same work takes another machine twice as many.
  [[ -z ${2-} ]] || ((cpu_s <= $2)) || echo "More than the $2 CPU s of tiers.toml: see \`make tiers\`."
  ((${#failed[@]} == 0)) || echo "FAILED: ${failed[*]}"
  # Last of all, pytest's own closing line.
  grep -E '^=+ .*(passed|failed|skipped|error|no tests ran).* in .*=+$' "$1" | tail -n 1 || true
  ((${#failed[@]} == 0))
}
